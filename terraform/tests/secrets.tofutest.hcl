# Passwords and TLS: only the names of secrets are outside Secret Manager.

mock_provider "google" {}

variables {
  project = "test-project"
  servers = {
    pages  = { backend = "memory", options = { extended = "idle_timeout=600" } }
    bucket = { backend = "bucket" }
  }
}

run "none" {
  command = plan

  assert {
    condition     = length(google_secret_manager_secret_iam_member.server) == 0 && local.secrets_list == ""
    error_message = "There is a secret by default."
  }

  assert {
    condition     = !contains(keys(google_project_service.apis), "secretmanager")
    error_message = "The API is enabled, but not needed."
  }

  assert {
    condition     = !strcontains(local.environments.bucket, "AUTH_FILE") && !strcontains(local.environments.bucket, "SSL")
    error_message = "Servers require passwords or TLS."
  }
}

run "passwords" {
  command = plan

  variables {
    secrets = { users = "memlite-users" }
  }

  assert {
    condition = alltrue([
      keys(google_secret_manager_secret_iam_member.server) == ["users"],
      google_secret_manager_secret_iam_member.server["users"].project == "test-project",
      google_secret_manager_secret_iam_member.server["users"].secret_id == "memlite-users",
      google_secret_manager_secret_iam_member.server["users"].role == "roles/secretmanager.secretAccessor",
    ])
    error_message = "Servers have no permission to read the secret, or have more permissions."
  }

  assert {
    condition     = local.secrets_list == "users projects/test-project/secrets/memlite-users/versions/latest"
    error_message = "Servers fetch the wrong secrets."
  }

  assert {
    condition = alltrue([
      strcontains(local.environments.pages, "MEMLITE_AUTH_FILE=\"/etc/memlite/secrets/users\""),
      strcontains(local.environments.pages, "MEMLITE_EXTENDED=\"idle_timeout=600\""),
      !strcontains(local.environments.bucket, "MEMLITE_EXTENDED"),
    ])
    error_message = "The settings are wrong."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "\nusers projects/test-project/secrets/memlite-users/versions/latest\n")
    error_message = "The secret is missing from a VM's list."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "\nExecStartPre=+/usr/local/sbin/memlite-secrets\nExecStart=")
    error_message = "The secrets are not fetched before memlite starts."
  }

  assert {
    condition     = contains(keys(google_project_service.apis), "secretmanager")
    error_message = "The API is not enabled."
  }
}

run "tls_with_client_certificates" {
  command = plan

  variables {
    load_generators = { count = 1 }
    secrets = {
      tls_certificate = "projects/other-project/secrets/chain/versions/3"
      tls_key         = "key/versions/2"
      tls_client_ca   = "ca"
    }
  }

  assert {
    condition     = google_secret_manager_secret_iam_member.server["tls_certificate"].project == "other-project" && google_secret_manager_secret_iam_member.server["tls_certificate"].secret_id == "chain"
    error_message = "The role is on the wrong secrets."
  }

  assert {
    condition = local.secrets_list == join("\n", [
      "tls_certificate projects/other-project/secrets/chain/versions/3",
      "tls_client_ca projects/test-project/secrets/ca/versions/latest",
      "tls_key projects/test-project/secrets/key/versions/2",
    ])
    error_message = "Servers fetch the wrong secrets."
  }

  assert {
    condition     = strcontains(local.environments.pages, "MEMLITE_EXTENDED=\"idle_timeout=600,ssl_ca_cert=/etc/memlite/secrets/tls_client_ca,ssl_chain_cert=/etc/memlite/secrets/tls_certificate,ssl_key=/etc/memlite/secrets/tls_key,ssl_verify_mode=2\"") && strcontains(local.environments.pages, "MEMLITE_ENABLE_SSL=\"true\"")
    error_message = "The settings are wrong."
  }

  assert {
    condition     = !strcontains(google_compute_instance.load[0].metadata.startup-script, "projects/other-project/secrets/")
    error_message = "Load generators list secrets that they have no permission to read."
  }
}

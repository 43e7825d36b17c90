# Memorystore for Valkey: private, encrypted, and only if a group needs it.

mock_provider "google" {
  mock_resource "google_memorystore_instance" {
    defaults = {
      endpoints = [{
        connections = [
          { psc_auto_connection = [{ ip_address = "10.128.0.9", port = 6379, connection_type = "CONNECTION_TYPE_PRIMARY" }] },
          { psc_auto_connection = [{ ip_address = "10.128.0.8", port = 6379, connection_type = "CONNECTION_TYPE_DISCOVERY" }] },
        ]
      }]
      managed_server_ca = [{ ca_certs = [{ certificates = ["-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"] }] }]
    }
  }
}

variables {
  project = "test-project"
  servers = {
    shared = { backend = "valkey" }
    pages  = { backend = "memory" }
  }
}

run "none" {
  command = plan

  variables {
    servers = { pages = { backend = "memory" } }
  }

  assert {
    condition     = length(google_memorystore_instance.valkey) + length(google_network_connectivity_service_connection_policy.valkey) + length(google_project_iam_member.valkey) == 0
    error_message = "There is an unnecessary store."
  }

  assert {
    condition     = !contains(keys(google_project_service.apis), "memorystore") && !strcontains(local.install.server, "valkey")
    error_message = "The store's API or dependencies are enabled or installed without a store."
  }
}

run "private_and_encrypted" {
  command = apply

  assert {
    condition = alltrue([
      google_memorystore_instance.valkey[0].transit_encryption_mode == "SERVER_AUTHENTICATION",
      google_memorystore_instance.valkey[0].authorization_mode == "IAM_AUTH",
      google_memorystore_instance.valkey[0].mode == "CLUSTER",
      google_memorystore_instance.valkey[0].replica_count == 1,
      google_memorystore_instance.valkey[0].engine_configs["maxmemory-policy"] == "noeviction",
      google_memorystore_instance.valkey[0].deletion_protection_enabled,
    ])
    error_message = "The store is open, loses items, or can be deleted by mistake."
  }

  assert {
    condition     = google_project_iam_member.valkey[0].role == "roles/memorystore.dbConnectionUser"
    error_message = "Servers have no permission to connect, or have more permissions."
  }

  assert {
    condition     = strcontains(local.environments.shared, "MEMLITE_BACKEND=\"valkeys://10.128.0.8:6379/items?cluster=1&iam=1&verify=ca&ca_cert=/etc/memlite/valkey-ca.pem\"")
    error_message = "Servers use the wrong store or the wrong options."
  }

  assert {
    condition     = strcontains(google_compute_instance_template.server["shared"].metadata.startup-script, "\ncat >/etc/memlite/valkey-ca.pem <<'END_OF_FILE'\n-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\nEND_OF_FILE\n")
    error_message = "Servers do not get the store's CA."
  }

  assert {
    condition     = !strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "valkey-ca.pem")
    error_message = "Other VMs also get the store's CA."
  }

  assert {
    condition     = contains(keys(google_project_service.apis), "memorystore") && strcontains(local.install.server, "memlite-cache[gcs,valkey]")
    error_message = "A prerequisite of the store is missing."
  }
}

run "confirmed_changes_on_a_network_of_others" {
  command = apply

  variables {
    valkey = { shards = 3, replicas = 2, wait = 1, append_fsync = "ALWAYS", deletion_protection = false }
    existing_network = {
      network    = "projects/host/global/networks/shared"
      subnetwork = "projects/host/regions/europe-west1/subnetworks/shared"
    }
  }

  assert {
    condition     = strcontains(local.environments.shared, "&wait=1\"")
    error_message = "Changes do not wait for replicas."
  }

  assert {
    condition     = length(google_network_connectivity_service_connection_policy.valkey) == 0
    error_message = "The module changes an existing network."
  }
}

run "more_to_wait_for_than_there_are" {
  command = plan

  variables {
    valkey = { replicas = 1, wait = 2 }
  }

  expect_failures = [var.valkey]
}

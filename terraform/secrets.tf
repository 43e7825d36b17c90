# Passwords and certificates stay in Secret Manager: settings, metadata and Terraform's state contain only their names. A VM
# fetches them with startup_secrets.py.

locals {
  # The files on a VM, by name.
  secrets = { for name, secret in var.secrets : name =>
    regex("^(?:projects/(?P<project>[^/]+)/secrets/)?(?P<id>[^/]+)(?:/versions/(?P<version>[^/]+))?$", secret)
  if secret != null }

  secrets_folder = "/etc/memlite/secrets"

  # Lines for startup_secrets.py: a file, and the version of a secret.
  secrets_lines = { for name, secret in local.secrets :
    name => "${name} projects/${coalesce(secret.project, var.project)}/secrets/${secret.id}/versions/${coalesce(secret.version, "latest")}"
  }

  # The password for the nodes is only for the proxies.
  secrets_list = join("\n", [for name, line in local.secrets_lines : line if name != "node_password"])

  tls = var.secrets.tls_certificate != null

  secrets_settings = merge(
    var.secrets.users == null ? {} : { AUTH_FILE = "${local.secrets_folder}/users" },
    local.tls ? { ENABLE_SSL = "true" } : {},
  )

  secrets_extended = [for option, file in {
    ssl_chain_cert  = local.tls ? "tls_certificate" : null
    ssl_key         = local.tls ? "tls_key" : null
    ssl_ca_cert     = var.secrets.tls_client_ca != null ? "tls_client_ca" : null
    ssl_verify_mode = var.secrets.tls_client_ca != null ? "2" : null
  } : "${option}=${option == "ssl_verify_mode" ? file : "${local.secrets_folder}/${file}"}" if file != null]
}

resource "google_secret_manager_secret_iam_member" "server" {
  for_each = local.secrets

  project   = coalesce(each.value.project, var.project)
  secret_id = each.value.id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.server.email}"

  depends_on = [google_project_service.apis]
}

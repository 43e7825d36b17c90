# Memorystore for Valkey, which servers with `backend = "valkey"` share: private, with TLS, and with access tokens of their
# service account in place of a password. It is created only if a group needs it.

locals {
  valkey_groups = [for group, settings in var.servers : group if settings.backend == "valkey"]
  valkey        = length(local.valkey_groups) > 0 ? 1 : 0

  # The address at which clients discover the shards.
  valkey_address = one(flatten([for instance in google_memorystore_instance.valkey : [
    for endpoint in instance.endpoints : [
      for connection in endpoint.connections : [
        for each in connection.psc_auto_connection : "${each.ip_address}:${each.port}"
        if each.connection_type == "CONNECTION_TYPE_DISCOVERY"
      ]
    ]
  ]]))

  # The CA belongs to this instance alone, so any certificate that it signed is the instance's, regardless of the name in it.
  valkey_url = local.valkey == 0 ? "" : join("&", concat(
    ["valkeys://${local.valkey_address}/items?cluster=1", "iam=1", "verify=ca", "ca_cert=/etc/memlite/valkey-ca.pem"],
    var.valkey.wait == 0 ? [] : ["wait=${var.valkey.wait}"],
  ))

  valkey_ca = join("\n", flatten([for instance in google_memorystore_instance.valkey : [
    for authority in instance.managed_server_ca : [for chain in authority.ca_certs : chain.certificates]
  ]]))

  valkey_startup = { for group in local.valkey_groups : group => {
    identity = join("\n", [
      "install -d -m 755 /etc/memlite",
      "cat >/etc/memlite/valkey-ca.pem <<'END_OF_FILE'",
      trimspace(local.valkey_ca),
      "END_OF_FILE",
    ])
  } }
}

# Lets Google create the addresses of the instance in the subnet. With an existing network, its owner must have created one.
resource "google_network_connectivity_service_connection_policy" "valkey" {
  count = local.valkey * local.own_network

  project       = var.project
  name          = "${var.name}-valkey"
  location      = var.region
  service_class = "gcp-memorystore"
  network       = local.network

  psc_config {
    subnetworks = [local.subnetwork]
  }

  depends_on = [google_project_service.apis]
}

resource "google_memorystore_instance" "valkey" {
  count = local.valkey

  project                     = var.project
  instance_id                 = "${var.name}-valkey"
  location                    = var.region
  mode                        = "CLUSTER"
  shard_count                 = var.valkey.shards
  replica_count               = var.valkey.replicas
  node_type                   = var.valkey.node_type
  transit_encryption_mode     = "SERVER_AUTHENTICATION"
  authorization_mode          = "IAM_AUTH"
  deletion_protection_enabled = var.valkey.deletion_protection
  labels                      = local.labels

  engine_configs = {
    # A full store refuses changes, rather than losing acknowledged items.
    maxmemory-policy = "noeviction"
  }

  persistence_config {
    mode = "AOF"
    aof_config {
      append_fsync = var.valkey.append_fsync
    }
  }

  desired_auto_created_endpoints {
    network    = local.network
    project_id = var.project
  }

  depends_on = [google_network_connectivity_service_connection_policy.valkey]
}

resource "google_project_iam_member" "valkey" {
  count = local.valkey

  project = var.project
  role    = "roles/memorystore.dbConnectionUser"
  member  = "serviceAccount:${google_service_account.server.email}"
}

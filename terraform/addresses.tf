# Addresses and names that stay the same when VMs are replaced: one for each single server and each managed group.

locals {
  # The names of single servers, such as pages-1, of managed groups, and of a cluster's proxies.
  addressed = toset(concat(keys(local.servers), keys(local.balanced)))

  addresses = { for name, address in google_compute_address.server : name => address.address }

  # The hosts that clients connect to.
  hosts = { for name in local.addressed : name => var.dns_domain == null ? local.addresses[name] : "${name}.${var.dns_domain}" }
}

resource "google_compute_address" "server" {
  for_each = local.addressed

  project      = var.project
  name         = "${var.name}-${each.key}"
  region       = var.region
  address_type = "INTERNAL"
  purpose      = "GCE_ENDPOINT"
  subnetwork   = local.subnetwork
  labels       = local.labels

  lifecycle {
    precondition {
      condition     = var.existing_network == null || strcontains(local.subnetwork, "/regions/${var.region}/")
      error_message = "The subnet ${local.subnetwork} is not in the region ${var.region}."
    }
  }

  depends_on = [google_project_service.apis]
}

resource "google_dns_managed_zone" "zone" {
  count = var.dns_domain == null ? 0 : 1

  project     = var.project
  name        = var.name
  description = "Servers of ${var.name}"
  dns_name    = "${var.dns_domain}."
  visibility  = "private"
  labels      = local.labels

  private_visibility_config {
    dynamic "networks" {
      for_each = concat([local.network], var.dns_networks)
      content {
        network_url = networks.value
      }
    }
  }

  depends_on = [google_project_service.apis]
}

resource "google_dns_record_set" "server" {
  for_each = var.dns_domain == null ? [] : local.addressed

  project      = var.project
  managed_zone = google_dns_managed_zone.zone[0].name
  name         = "${each.key}.${var.dns_domain}."
  type         = "A"
  ttl          = 60
  rrdatas      = [local.addresses[each.key]]
}

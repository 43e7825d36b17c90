# The module's own network, unless an existing one is used.

locals {
  own_network = var.existing_network == null ? 1 : 0

  network    = local.own_network == 1 ? google_compute_network.network[0].id : var.existing_network.network
  subnetwork = local.own_network == 1 ? google_compute_subnetwork.subnet[0].id : var.existing_network.subnetwork

  # In a shared VPC, firewall rules are in the host project.
  network_project = local.own_network == 1 ? var.project : regex("projects/([^/]+)/", var.existing_network.network)[0]
}

resource "google_compute_network" "network" {
  count = local.own_network

  project                 = var.project
  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.apis]
}

resource "google_compute_subnetwork" "subnet" {
  count = local.own_network

  project       = var.project
  name          = var.name
  region        = var.region
  network       = local.network
  ip_cidr_range = var.subnet_range
  # Lets VMs reach the bucket without an external address, and without NAT, which bills by the gigabyte.
  private_ip_google_access = true
}

# Cloud NAT, to install Debian and Python packages.

resource "google_compute_router" "router" {
  count = var.external_addresses ? 0 : local.own_network

  project = var.project
  name    = var.name
  region  = var.region
  network = local.network
}

resource "google_compute_router_nat" "nat" {
  count = var.external_addresses ? 0 : local.own_network

  project                            = var.project
  name                               = var.name
  region                             = var.region
  router                             = google_compute_router.router[0].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = local.subnetwork
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }
}

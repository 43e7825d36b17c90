resource "google_compute_network" "network" {
  project                 = var.project
  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.apis]
}

resource "google_compute_subnetwork" "subnet" {
  project       = var.project
  name          = var.name
  region        = var.region
  network       = google_compute_network.network.id
  ip_cidr_range = var.subnet_range
  # Lets VMs reach the bucket without an external address, and without NAT, which bills by the gigabyte.
  private_ip_google_access = true
}

# Cloud NAT, to install Debian and Python packages.

resource "google_compute_router" "router" {
  count = var.external_addresses ? 0 : 1

  project = var.project
  name    = var.name
  region  = var.region
  network = google_compute_network.network.id
}

resource "google_compute_router_nat" "nat" {
  count = var.external_addresses ? 0 : 1

  project                            = var.project
  name                               = var.name
  region                             = var.region
  router                             = google_compute_router.router[0].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = google_compute_subnetwork.subnet.id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }
}

# Networks of Google Cloud deny all ingress that no rule allows.

resource "google_compute_firewall" "clients" {
  project       = var.project
  name          = "${var.name}-clients"
  description   = "memcached's protocol, from the subnet and the configured ranges"
  network       = google_compute_network.network.id
  direction     = "INGRESS"
  source_ranges = concat([var.subnet_range], var.client_ranges)
  target_tags   = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.port)]
  }
}

resource "google_compute_firewall" "ssh" {
  project     = var.project
  name        = "${var.name}-ssh"
  description = "SSH, only through Identity-Aware Proxy"
  network     = google_compute_network.network.id
  direction   = "INGRESS"
  # The fixed source range of Identity-Aware Proxy.
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

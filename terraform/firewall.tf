# What no rule here lets in stays out: so it is in every network of Google Cloud.

resource "google_compute_firewall" "clients" {
  project       = var.project
  name          = "${var.name}-clients"
  description   = "memcached's protocol, from the subnet and from ranges that were given"
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
  description = "SSH, through Identity-Aware Proxy alone"
  network     = google_compute_network.network.id
  direction   = "INGRESS"
  # Where Identity-Aware Proxy connects from, everywhere and always.
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

# Networks of Google Cloud deny all ingress unless a rule allows it.

locals {
  firewall = var.existing_network == null || try(var.existing_network.create_firewall_rules, false)

  # The ports of the servers and proxies that gcp-bench --study starts.
  study_ports = { first = 21000, last = 21099 }
}

resource "google_compute_firewall" "clients" {
  count = local.firewall ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-clients"
  description = "memcached's protocol, from the configured ranges, the load generators, and the subnet that the module creates"
  network     = local.network
  direction   = "INGRESS"
  # An existing subnet may be shared with other users.
  source_ranges = concat(var.existing_network == null ? [var.subnet_range] : [], var.client_ranges)
  source_tags   = [local.load_tag]
  target_tags   = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.port)]
  }
}

resource "google_compute_firewall" "health_checks" {
  count = local.firewall && length(local.groups) > 0 ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-health-checks"
  description = "Google's health checks of managed servers"
  network     = local.network
  direction   = "INGRESS"
  # The fixed source ranges of health checks.
  source_ranges = ["35.191.0.0/16", "130.211.0.0/22"]
  target_tags   = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.port)]
  }
}

resource "google_compute_firewall" "cluster" {
  count = local.firewall && var.cluster != null ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-cluster"
  description = "memcached's protocol between a cluster's proxies and nodes, in an existing subnet as well"
  network     = local.network
  direction   = "INGRESS"
  source_tags = [local.server_tag]
  target_tags = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.port)]
  }
}

resource "google_compute_firewall" "study" {
  count = local.firewall && var.load_generators.count > 0 ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-study"
  description = "Servers and proxies that gcp-bench --study starts, from load generators and from each other"
  network     = local.network
  direction   = "INGRESS"
  source_tags = [local.load_tag, local.server_tag]
  target_tags = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = ["${local.study_ports.first}-${local.study_ports.last}"]
  }
}

resource "google_compute_firewall" "study_ssh" {
  count = local.firewall && var.load_generators.count > 0 ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-study-ssh"
  description = "SSH from load generators, which gcp-bench --study uses to start servers and proxies"
  network     = local.network
  direction   = "INGRESS"
  source_tags = [local.load_tag]
  target_tags = [local.server_tag]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_firewall" "ssh" {
  count = local.firewall ? 1 : 0

  project     = local.network_project
  name        = "${var.name}-ssh"
  description = "SSH, only through Identity-Aware Proxy"
  network     = local.network
  direction   = "INGRESS"
  # The fixed source range of Identity-Aware Proxy.
  source_ranges = ["35.235.240.0/20"]
  target_tags   = [local.server_tag, local.load_tag]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

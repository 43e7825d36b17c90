# Servers with a bucket or Valkey hold no data of their own, so Google may replace them at any time: they are managed
# instance groups, each behind a load balancer whose address stays the same.

locals {
  managed = { for group, settings in var.servers : group => settings if coalesce(settings.managed, contains(["bucket", "valkey"], settings.backend)) }

  # This includes the proxies of a cluster. Its nodes are not behind a common address, because each holds different items.
  balanced = merge(local.managed, local.proxies)
  groups   = merge(local.balanced, local.nodes)

  # Null: Google spreads them over zones of the region.
  group_zones = { for group, settings in local.groups : group =>
    settings.zones != null ? settings.zones : settings.zone != null ? [settings.zone] : var.zone != null ? [var.zone] : null
  }
}

resource "google_compute_instance_template" "server" {
  for_each = local.groups

  project      = var.project
  name_prefix  = "${var.name}-${each.key}-"
  region       = var.region
  machine_type = each.value.machine_type
  labels       = merge(local.labels, { memlite_group = each.key, memlite_managed = "true" })
  tags         = [local.server_tag]

  disk {
    source_image = var.image
    disk_size_gb = each.value.disk_size_gb
    disk_type    = each.value.disk_type
    boot         = true
    auto_delete  = true
    labels       = local.labels
  }

  network_interface {
    subnetwork = local.subnetwork

    dynamic "access_config" {
      for_each = var.external_addresses ? [""] : []
      content {}
    }
  }

  service_account {
    email  = google_service_account.server.email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = local.metadata[each.key]

  lifecycle {
    # The group uses the old template until it has the new one.
    create_before_destroy = true

    precondition {
      condition     = alltrue([for zone in coalesce(local.group_zones[each.key], []) : startswith(zone, "${var.region}-")])
      error_message = "The zones ${join(", ", coalesce(local.group_zones[each.key], []))} are not all in the region ${var.region}, where the subnet is."
    }
  }

  depends_on = [google_project_service.apis]
}

resource "google_compute_region_instance_group_manager" "server" {
  for_each = local.groups

  project                   = var.project
  name                      = "${var.name}-${each.key}"
  region                    = var.region
  base_instance_name        = "${var.name}-${each.key}"
  target_size               = var.desired_status == "RUNNING" ? each.value.count : 0
  distribution_policy_zones = local.group_zones[each.key]

  version {
    instance_template = google_compute_instance_template.server[each.key].self_link_unique
  }

  auto_healing_policies {
    health_check      = google_compute_health_check.healing[each.key].id
    initial_delay_sec = var.updates.initial_delay
  }

  update_policy {
    # An update of nodes loses their items, so nodes are only updated when an operator replaces them one by one. They
    # are also never moved just to balance zones.
    type                         = contains(keys(local.nodes), each.key) ? "OPPORTUNISTIC" : var.updates.type
    instance_redistribution_type = contains(keys(local.nodes), each.key) ? "NONE" : null
    minimal_action               = "REPLACE"
    # Null: as many as there are zones.
    max_surge_fixed       = var.updates.max_surge
    max_unavailable_fixed = var.updates.max_unavailable
  }

  # The package of an old template may have been deleted from the bucket.
  instance_lifecycle_policy {
    force_update_on_repair = "YES"
  }

  # The first boot needs packages and the bucket.
  depends_on = [
    google_compute_router_nat.nat,
    google_storage_bucket_iam_member.server,
    google_storage_bucket_object.requirements,
    google_secret_manager_secret_iam_member.server,
  ]
}

# Both checks only connect: systemd's watchdog restarts a memlite that hangs, and a request would depend on passwords and
# TLS. A VM that does not answer gets no connections after ten seconds, and is replaced after three minutes.

resource "google_compute_health_check" "balancing" {
  for_each = local.balanced

  project             = var.project
  name                = "${var.name}-${each.key}-balancing"
  check_interval_sec  = 5
  timeout_sec         = 5
  healthy_threshold   = 1
  unhealthy_threshold = 2

  tcp_health_check {
    port = var.port
  }

  depends_on = [google_project_service.apis]
}

resource "google_compute_health_check" "healing" {
  for_each = local.groups

  project             = var.project
  name                = "${var.name}-${each.key}-healing"
  check_interval_sec  = 30
  timeout_sec         = 10
  healthy_threshold   = 1
  unhealthy_threshold = 6

  tcp_health_check {
    port = var.port
  }

  depends_on = [google_project_service.apis]
}

# The load balancer passes packets through, and adds no hop.

resource "google_compute_region_backend_service" "server" {
  for_each = local.balanced

  project                         = var.project
  name                            = "${var.name}-${each.key}"
  region                          = var.region
  protocol                        = "TCP"
  load_balancing_scheme           = "INTERNAL"
  health_checks                   = [google_compute_health_check.balancing[each.key].id]
  connection_draining_timeout_sec = 30

  backend {
    group          = google_compute_region_instance_group_manager.server[each.key].instance_group
    balancing_mode = "CONNECTION"
  }

  lifecycle {
    # Changing the zones creates a new group; the old one cannot be deleted while it is in use.
    replace_triggered_by = [google_compute_region_instance_group_manager.server[each.key].distribution_policy_zones]
  }
}

resource "google_compute_forwarding_rule" "server" {
  for_each = local.balanced

  project               = var.project
  name                  = "${var.name}-${each.key}"
  region                = var.region
  load_balancing_scheme = "INTERNAL"
  backend_service       = google_compute_region_backend_service.server[each.key].id
  ip_protocol           = "TCP"
  ports                 = [tostring(var.port)]
  ip_address            = google_compute_address.server[each.key].id
  network               = local.network
  subnetwork            = local.subnetwork
  # Like a VM's address, it can be reached from other regions.
  allow_global_access = true
  labels              = local.labels

  lifecycle {
    replace_triggered_by = [google_compute_region_instance_group_manager.server[each.key].distribution_policy_zones]
  }
}

resource "google_compute_instance" "load" {
  count = var.load_generators.count

  project                   = var.project
  name                      = "${var.name}-load-${count.index + 1}"
  zone                      = coalesce(var.load_generators.zone, local.zone)
  machine_type              = var.load_generators.machine_type
  desired_status            = var.desired_status
  allow_stopping_for_update = true
  labels                    = local.labels
  tags                      = [local.load_tag]

  boot_disk {
    initialize_params {
      image  = var.image
      size   = var.load_generators.disk_size_gb
      type   = var.load_generators.disk_type
      labels = local.labels
    }
  }

  network_interface {
    subnetwork = local.subnetwork

    dynamic "access_config" {
      for_each = var.external_addresses ? [""] : []
      content {}
    }
  }

  service_account {
    email  = google_service_account.load[0].email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    enable-oslogin         = "TRUE"
    block-project-ssh-keys = "TRUE"
    startup-script = templatefile("${path.module}/startup.sh.tftpl", merge(local.startup, {
      arguments    = "${local.install.load} --no-service"
      environment  = "# No server runs here."
      secrets_list = ""
      agent        = ""
    }))
  }

  lifecycle {
    precondition {
      condition     = startswith(coalesce(var.load_generators.zone, local.zone), "${var.region}-")
      error_message = "The zone ${coalesce(var.load_generators.zone, local.zone)} is not in the region ${var.region}, where the subnet is."
    }
  }

  depends_on = [
    google_compute_router_nat.nat,
    google_storage_bucket_iam_member.load,
    google_storage_bucket_object.requirements,
  ]
}

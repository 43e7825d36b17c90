# Items are in items/, the package in install/.

resource "google_storage_bucket" "bucket" {
  project                     = var.project
  name                        = coalesce(var.bucket_name, "${var.project}-${var.name}")
  location                    = upper(coalesce(var.bucket_location, var.region))
  storage_class               = "STANDARD"
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.bucket_force_destroy
  labels                      = local.labels

  # Google's default is seven days, in which each overwritten value would be billed.
  soft_delete_policy {
    retention_duration_seconds = var.bucket_soft_delete_seconds
  }

  # An item's custom time is its expiry; items without one have none.
  dynamic "lifecycle_rule" {
    for_each = var.bucket_days_since_custom_time == null ? [] : [var.bucket_days_since_custom_time]
    content {
      action {
        type = "Delete"
      }
      condition {
        days_since_custom_time = lifecycle_rule.value
        # Or the provider leaves a 0 out.
        send_days_since_custom_time_if_zero = true
        matches_prefix                      = ["items/"]
      }
    }
  }

  depends_on = [google_project_service.apis]
}

resource "google_storage_bucket_object" "wheel" {
  count = var.package.wheel == null ? 0 : 1

  bucket = google_storage_bucket.bucket.name
  # Another content has another name, so VMs see that it is another package.
  name   = "install/${substr(filesha256(var.package.wheel), 0, 12)}/${basename(var.package.wheel)}"
  source = var.package.wheel

  lifecycle {
    # The old one stays until no VM is told to install it.
    create_before_destroy = true
  }
}

# Items are under items/, packages for the VMs under install/, and the members of a cluster under cluster/.

resource "google_storage_bucket" "bucket" {
  project                     = var.project
  name                        = coalesce(var.bucket_name, "${var.project}-${var.name}")
  location                    = upper(coalesce(var.bucket_location, var.region))
  storage_class               = "STANDARD"
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.bucket_force_destroy
  labels                      = local.labels

  # With Google's default of seven days, every overwritten value would be billed for that long.
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
        # Otherwise the provider omits a 0.
        send_days_since_custom_time_if_zero = true
        matches_prefix                      = ["items/"]
      }
    }
  }

  depends_on = [google_project_service.apis]
}

# Service accounts of the VMs. Load generators have their own, because they need no access to items in the bucket.

resource "google_service_account" "server" {
  project      = var.project
  account_id   = "${var.name}-server"
  display_name = "memlite servers of ${var.name}"

  depends_on = [google_project_service.apis]
}

resource "google_service_account" "load" {
  count = var.load_generators.count > 0 ? 1 : 0

  project      = var.project
  account_id   = "${var.name}-load"
  display_name = "memlite load generators of ${var.name}"

  depends_on = [google_project_service.apis]
}

# For the Ops Agent.
resource "google_project_iam_member" "server" {
  for_each = toset(var.monitoring.agent ? ["roles/logging.logWriter", "roles/monitoring.metricWriter"] : [])

  project = var.project
  role    = each.value
  member  = "serviceAccount:${google_service_account.server.email}"
}

resource "google_storage_bucket_iam_member" "server" {
  for_each = toset([
    # For reading, writing, deleting and listing items.
    "roles/storage.objectUser",
    # For storage.buckets.get, so that memlite can warn at start-up if soft delete or versioning would cost money.
    "roles/storage.legacyBucketReader",
  ])

  bucket = google_storage_bucket.bucket.name
  role   = each.value
  member = "serviceAccount:${google_service_account.server.email}"
}

resource "google_storage_bucket_iam_member" "load" {
  count = var.load_generators.count > 0 ? 1 : 0

  bucket = google_storage_bucket.bucket.name
  role   = "roles/storage.objectViewer"
  member = "serviceAccount:${google_service_account.load[0].email}"

  condition {
    title      = "What is installed, and no items"
    expression = "resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.bucket.name}/objects/install/\")"
  }
}

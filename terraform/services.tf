resource "google_project_service" "apis" {
  for_each = toset(var.enable_apis ? concat(
    ["compute", "iam", "iap", "logging", "monitoring", "storage"],
    var.dns_domain != null ? ["dns"] : [],
    length(local.secrets) > 0 ? ["secretmanager"] : [],
    local.valkey == 1 ? ["memorystore", "networkconnectivity", "serviceconsumermanagement"] : [],
  ) : [])

  project = var.project
  service = "${each.value}.googleapis.com"
  # Other resources in the project may use the API.
  disable_on_destroy = false
}

# This monitors the machine. systemd monitors the process: its watchdog restarts a memlite that hangs or has exited.
# An uptime check would need an external address.

resource "google_monitoring_alert_policy" "down" {
  # No alert for VMs that were stopped on purpose.
  count = var.monitoring.enabled && var.desired_status == "RUNNING" && length(local.servers) > 0 ? 1 : 0

  project               = var.project
  display_name          = "${var.name}: a memlite VM is down"
  combiner              = "OR"
  notification_channels = var.monitoring.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = "no uptime reported for five minutes"

    condition_absent {
      filter = join(" AND ", [
        "resource.type = \"gce_instance\"",
        "metric.type = \"compute.googleapis.com/instance/uptime_total\"",
        "metadata.user_labels.memlite = \"${var.name}\"",
      ])
      duration = "300s"

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "`gcloud compute instances list --project ${var.project} --filter labels.memlite=${var.name}` shows which VM; its serial port output shows why."
  }

  depends_on = [google_project_service.apis]
}

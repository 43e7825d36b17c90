# The Ops Agent on servers, and alerts if a VM is down, memlite does not respond, or memlite failed. With
# monitoring.metrics, also memlite's own metrics, a dashboard, and alerts on the metrics.

locals {
  agent = var.monitoring.agent ? var.monitoring.agent_version : ""

  # The agent's receiver supports neither passwords nor TLS.
  statistics = var.secrets.users == null && !local.tls

  # On loopback only, and without TLS.
  http_port = 9150
  http      = "${local.tls ? "notls:" : ""}127.0.0.1:${local.http_port}"

  # Proxies and load generators have no metrics of their own.
  agent_config = { for vm, metrics in { server = var.monitoring.metrics, other = false } : vm => trimspace(templatefile("${path.module}/startup_agent.yaml.tftpl", {
    name       = var.name
    port       = var.port
    http_port  = local.http_port
    statistics = local.statistics
    metrics    = metrics
  })) }

  alerts = var.monitoring.enabled && var.desired_status == "RUNNING"

  is_ours     = "metadata.user_labels.memlite = \"${var.name}\""
  of_instance = "resource.type = \"gce_instance\""

  # The signal that memlite is running, as reported by the agent: its statistics, or at least its process.
  sign_of_life = join(" AND ", concat([local.of_instance, local.is_ours], local.statistics ? [
    "metric.type = \"workload.googleapis.com/memcached.connections.current\"",
    ] : [
    "metric.type = \"agent.googleapis.com/processes/rss_usage\"",
    "metric.labels.process = \"memlite\"",
  ]))

  # Errors that memlite logs, and messages that systemd logs when memlite crashes, hangs or does not start.
  failures = join(" AND ", [
    local.of_instance,
    "log_id(\"journal\")",
    "labels.\"compute.googleapis.com/resource_name\" =~ \"^${var.name}-\"",
    join(" OR ", [
      "((jsonPayload._SYSTEMD_UNIT =~ \"^memlite(-secrets)?.service$\" AND jsonPayload.MESSAGE =~ \"^memlite(-secrets)?: error: |\\\"level\\\":\\\"error\\\"\")",
      "(jsonPayload.UNIT = \"memlite.service\" AND jsonPayload.MESSAGE =~ \"Failed with result|Watchdog timeout\"))",
    ]),
  ])
}

resource "google_monitoring_alert_policy" "down" {
  # No alert for VMs that were stopped on purpose. Those of managed groups come and go.
  count = local.alerts && length(local.servers) > 0 ? 1 : 0

  project               = var.project
  display_name          = "${var.name}: a memlite VM is down"
  combiner              = "OR"
  notification_channels = var.monitoring.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = "no uptime reported for five minutes"

    condition_absent {
      filter = join(" AND ", [
        local.of_instance,
        local.is_ours,
        "metadata.user_labels.memlite_managed = \"false\"",
        "metric.type = \"compute.googleapis.com/instance/uptime_total\"",
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

resource "google_monitoring_alert_policy" "silent" {
  for_each = { for group, settings in merge(var.servers, local.groups) : group => settings if local.alerts && var.monitoring.agent && settings.count > 0 }

  project               = var.project
  display_name          = "${var.name}: ${each.key}: fewer than ${each.value.count} memlite servers respond"
  combiner              = "OR"
  notification_channels = var.monitoring.notification_channels
  user_labels           = local.labels

  # Replaced VMs leave their time series behind, so only series with recent data are counted.
  conditions {
    display_name = "fewer than ${each.value.count} for ten minutes"

    condition_threshold {
      filter          = "${local.sign_of_life} AND metadata.user_labels.memlite_group = \"${each.key}\""
      comparison      = "COMPARISON_LT"
      threshold_value = each.value.count
      duration        = "600s"
      # No data at all also means fewer.
      evaluation_missing_data = "EVALUATION_MISSING_DATA_ACTIVE"

      aggregations {
        alignment_period     = "120s"
        per_series_aligner   = "ALIGN_MEAN"
        cross_series_reducer = "REDUCE_COUNT"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "On each VM: `systemctl status memlite google-cloud-ops-agent`, and `journalctl -u google-startup-scripts -u memlite-startup -u memlite`."
  }

  depends_on = [google_project_service.apis]
}

resource "google_monitoring_alert_policy" "failed" {
  count = local.alerts && var.monitoring.agent && length(merge(var.servers, local.groups)) > 0 ? 1 : 0

  project               = var.project
  display_name          = "${var.name}: memlite failed"
  combiner              = "OR"
  notification_channels = var.monitoring.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = "an error, a crash, a hang or a failed start in the journal"

    condition_matched_log {
      filter = local.failures
    }
  }

  alert_strategy {
    auto_close = "3600s"

    notification_rate_limit {
      period = "900s"
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The VM's log: `journalctl -u memlite`. systemd restarts memlite within seconds, unless its settings are invalid."
  }

  depends_on = [google_project_service.apis]
}

# Both files are written by scripts/docs/write_monitoring.py from the definitions of the metrics.

resource "google_monitoring_dashboard" "memlite" {
  count = var.monitoring.metrics ? 1 : 0

  project        = var.project
  dashboard_json = replace(file("${path.module}/monitoring_dashboard.json"), "DEPLOYMENT", var.name)

  depends_on = [google_project_service.apis]
}

resource "google_monitoring_alert_policy" "metric" {
  for_each = { for name, alert in jsondecode(file("${path.module}/monitoring_alerts.json")) : name => alert if local.alerts && var.monitoring.metrics }

  project               = var.project
  display_name          = "${var.name}: ${each.key}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.monitoring.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query               = replace(each.value.query, "DEPLOYMENT", var.name)
      duration            = each.value.duration
      evaluation_interval = "60s"
      rule_group          = "memlite"
      alert_rule          = each.key
      # A metric does not exist until a server has reported it.
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = each.value.documentation
  }

  depends_on = [google_project_service.apis]
}

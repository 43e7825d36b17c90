# The Ops Agent, and alerts on VMs and on memlite.

mock_provider "google" {}

variables {
  project         = "test-project"
  load_generators = { count = 1 }
  servers = {
    bucket = { backend = "bucket", count = 3 }
    pages  = { backend = "memory" }
  }
}

run "the_agent_and_no_alert_by_default" {
  command = plan

  assert {
    condition = alltrue([for script in [google_compute_instance.server["pages-1"].metadata.startup-script, google_compute_instance_template.server["bucket"].metadata.startup-script] :
      strcontains(script, "\nagent='2.70.0'\n") && strcontains(script, "\n      type: memcached\n      endpoint: 127.0.0.1:11211\n")
    ])
    error_message = "The agent is not installed, or does not query memlite."
  }

  assert {
    condition     = strcontains(google_compute_instance.load[0].metadata.startup-script, "\nagent=''\n")
    error_message = "The agent is installed on load generators."
  }

  assert {
    condition     = length(google_project_iam_member.server) == 2
    error_message = "The agent has no permission to report."
  }

  assert {
    condition     = length(google_monitoring_alert_policy.down) + length(google_monitoring_alert_policy.silent) + length(google_monitoring_alert_policy.failed) == 0
    error_message = "There is an alert by default."
  }
}

run "no_agent" {
  command = plan

  variables {
    monitoring = { agent = false, enabled = true }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "\nagent=''\n") && length(google_project_iam_member.server) == 0
    error_message = "The agent is installed, or there are roles without it."
  }

  assert {
    condition     = length(google_monitoring_alert_policy.down) == 1 && length(google_monitoring_alert_policy.silent) + length(google_monitoring_alert_policy.failed) == 0
    error_message = "There is an alert that requires the agent, or no alert on the VM."
  }
}

run "alerts" {
  command = plan

  variables {
    monitoring = { enabled = true, notification_channels = ["projects/test-project/notificationChannels/1"] }
  }

  assert {
    condition = alltrue([for policy in concat(google_monitoring_alert_policy.down, values(google_monitoring_alert_policy.silent), google_monitoring_alert_policy.failed) :
      policy.notification_channels == tolist(["projects/test-project/notificationChannels/1"])
    ]) && length(google_monitoring_alert_policy.down) == 1 && length(google_monitoring_alert_policy.failed) == 1
    error_message = "There is no alert, or it has no channel."
  }

  assert {
    condition     = { for group, policy in google_monitoring_alert_policy.silent : group => one(one(policy.conditions).condition_threshold).threshold_value } == { bucket = 3, pages = 1 }
    error_message = "There is no alert for servers that do not respond."
  }

  assert {
    condition     = strcontains(one(one(google_monitoring_alert_policy.silent["bucket"].conditions).condition_threshold).filter, "workload.googleapis.com/memcached.connections.current") && one(one(google_monitoring_alert_policy.silent["bucket"].conditions).condition_threshold).evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE"
    error_message = "The alert does not monitor memlite, or does not fire without data."
  }

  assert {
    condition     = one(one(google_monitoring_alert_policy.failed[0].conditions).condition_matched_log).filter == local.failures && strcontains(local.failures, "(jsonPayload.UNIT = \"memlite.service\" AND jsonPayload.MESSAGE =~ \"Failed with result|Watchdog timeout\")")
    error_message = "There is no alert for failures."
  }

  assert {
    condition     = strcontains(one(one(google_monitoring_alert_policy.down[0].conditions).condition_absent).filter, "metadata.user_labels.memlite_managed = \"false\"") && google_compute_instance.server["pages-1"].labels.memlite_managed == "false"
    error_message = "Each update of a managed group would trigger an alert."
  }
}

run "with_passwords_the_process_is_watched" {
  command = plan

  variables {
    secrets    = { users = "memlite-users" }
    monitoring = { enabled = true }
  }

  assert {
    condition     = !strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "type: memcached") && strcontains(one(one(google_monitoring_alert_policy.silent["pages"].conditions).condition_threshold).filter, "agent.googleapis.com/processes/rss_usage")
    error_message = "memlite would refuse the agent."
  }
}

run "metrics" {
  command = plan

  variables {
    monitoring = { metrics = true, enabled = true }
  }

  assert {
    condition = alltrue([for script in [google_compute_instance.server["pages-1"].metadata.startup-script, google_compute_instance_template.server["bucket"].metadata.startup-script] :
      strcontains(script, "\nMEMLITE_HTTP=\"127.0.0.1:9150\"\n") && strcontains(script, "targets: [\"127.0.0.1:9150\"]") && strcontains(script, "deployment: memlite\n")
    ])
    error_message = "memlite does not serve its metrics, or the agent does not scrape them."
  }

  assert {
    condition     = length(google_monitoring_dashboard.memlite) == 1 && !strcontains(google_monitoring_dashboard.memlite[0].dashboard_json, "DEPLOYMENT")
    error_message = "There is no dashboard, or it does not select the deployment."
  }

  assert {
    condition = length(google_monitoring_alert_policy.metric) > 5 && alltrue([for policy in values(google_monitoring_alert_policy.metric) :
      strcontains(one(one(policy.conditions).condition_prometheus_query_language).query, "deployment=\"memlite\"")
    ])
    error_message = "There are no alerts on metrics, or they do not select the deployment."
  }
}

run "no_metrics_by_default" {
  command = plan

  assert {
    condition     = !strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "MEMLITE_HTTP") && !strcontains(google_compute_instance.server["pages-1"].metadata.startup-script, "type: prometheus") && length(google_monitoring_dashboard.memlite) == 0
    error_message = "Metrics are sent, and billed, by default."
  }
}

run "metrics_without_the_agent" {
  command = plan

  variables {
    monitoring = { metrics = true, agent = false }
  }

  expect_failures = [var.monitoring]
}

run "agent_version_that_is_a_range" {
  command = plan

  variables {
    monitoring = { agent_version = "2.*.*" }
  }

  expect_failures = [var.monitoring]
}

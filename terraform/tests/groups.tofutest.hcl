# Managed groups of servers with a bucket: healed, updated one by one, and found at one address.

mock_provider "google" {}

variables {
  project = "test-project"
  servers = {
    sessions = { backend = "bucket", count = 3, machine_type = "e2-standard-2", disk_size_gb = 20 }
    single   = { backend = "bucket", count = 2, managed = false }
    pages    = { backend = "memory" }
    files    = { backend = "file" }
  }
}

run "only_those_with_a_bucket" {
  command = plan

  assert {
    condition     = keys(google_compute_region_instance_group_manager.server) == ["sessions"] && keys(google_compute_instance_template.server) == ["sessions"]
    error_message = "Groups that would lose their items are managed."
  }

  assert {
    condition     = keys(google_compute_instance.server) == ["files-1", "pages-1", "single-1", "single-2"]
    error_message = "The single servers are wrong."
  }
}

run "the_group" {
  command = plan

  assert {
    condition = alltrue([
      google_compute_region_instance_group_manager.server["sessions"].target_size == 3,
      google_compute_region_instance_group_manager.server["sessions"].region == "europe-west1",
      google_compute_instance_template.server["sessions"].machine_type == "e2-standard-2",
      google_compute_instance_template.server["sessions"].disk[0].disk_size_gb == 20,
      google_compute_instance_template.server["sessions"].labels == tomap({ memlite = "memlite", memlite_group = "sessions", memlite_managed = "true" }),
    ])
    error_message = "The group's VMs are wrong."
  }

  assert {
    condition     = one(google_compute_region_instance_group_manager.server["sessions"].auto_healing_policies).initial_delay_sec == 900 && google_compute_health_check.healing["sessions"].unhealthy_threshold * google_compute_health_check.healing["sessions"].check_interval_sec == 180
    error_message = "A VM is replaced too early, or not at all."
  }

  assert {
    condition = alltrue([for check in concat(values(google_compute_health_check.healing), values(google_compute_health_check.balancing)) :
      one(check.tcp_health_check).port == 11211
    ])
    error_message = "The health check uses the wrong port."
  }

  assert {
    condition = alltrue([
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).type == "PROACTIVE",
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).minimal_action == "REPLACE",
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).max_unavailable_fixed == 0,
    ])
    error_message = "An update would leave clients without servers."
  }

  assert {
    condition     = strcontains(google_compute_instance_template.server["sessions"].metadata.startup-script, "\nMEMLITE_BACKEND=\"gs://test-project-memlite/items\"\n")
    error_message = "The group's servers do not use the bucket."
  }
}

run "the_load_balancer" {
  assert {
    condition = alltrue([
      google_compute_forwarding_rule.server["sessions"].load_balancing_scheme == "INTERNAL",
      google_compute_forwarding_rule.server["sessions"].ports == toset(["11211"]),
      google_compute_forwarding_rule.server["sessions"].ip_address == google_compute_address.server["sessions"].id,
      google_compute_region_backend_service.server["sessions"].load_balancing_scheme == "INTERNAL",
      one(google_compute_region_backend_service.server["sessions"].backend).group == google_compute_region_instance_group_manager.server["sessions"].instance_group,
      google_compute_region_backend_service.server["sessions"].health_checks == toset([google_compute_health_check.balancing["sessions"].id]),
    ])
    error_message = "The group is not behind its address, or its address is public."
  }

  assert {
    condition     = google_compute_firewall.health_checks[0].source_ranges == toset(["35.191.0.0/16", "130.211.0.0/22"]) && google_compute_firewall.health_checks[0].target_tags == toset(["memlite-server"])
    error_message = "Google's health checks cannot reach the servers, or others can."
  }

  assert {
    condition     = one(google_compute_firewall.health_checks[0].allow).ports == tolist(["11211"])
    error_message = "The rule for health checks opens other ports."
  }

  assert {
    condition     = output.servers["memlite-sessions"].address == google_compute_address.server["sessions"].address && output.servers["memlite-sessions"].count == 3
    error_message = "The output is wrong."
  }

  assert {
    condition     = output.ssh["memlite-sessions"] == "gcloud compute ssh $(gcloud compute instance-groups managed list-instances memlite-sessions --project test-project --region europe-west1 --limit 1 --uri) --project test-project --tunnel-through-iap"
    error_message = "The command for a shell is wrong."
  }
}

run "nothing_to_balance" {
  command = plan

  variables {
    servers = { pages = { backend = "memory" } }
  }

  assert {
    condition     = length(google_compute_forwarding_rule.server) == 0 && length(google_compute_firewall.health_checks) == 0 && length(google_compute_health_check.healing) == 0
    error_message = "There is a load balancer without a group."
  }
}

run "zones" {
  command = plan

  variables {
    zone = "europe-west1-d"
    servers = {
      all   = { backend = "bucket" }
      one   = { backend = "bucket", zone = "europe-west1-c" }
      three = { backend = "bucket", zones = ["europe-west1-b", "europe-west1-c", "europe-west1-d"] }
    }
  }

  assert {
    condition = { for group, manager in google_compute_region_instance_group_manager.server : group => manager.distribution_policy_zones } == {
      all   = toset(["europe-west1-d"])
      one   = toset(["europe-west1-c"])
      three = toset(["europe-west1-b", "europe-west1-c", "europe-west1-d"])
    }
    error_message = "The groups are in the wrong zones."
  }
}

run "updates_as_told" {
  command = plan

  variables {
    updates = { type = "OPPORTUNISTIC", max_surge = 0, max_unavailable = 3, initial_delay = 1200 }
  }

  assert {
    condition = alltrue([
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).type == "OPPORTUNISTIC",
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).max_surge_fixed == 0,
      one(google_compute_region_instance_group_manager.server["sessions"].update_policy).max_unavailable_fixed == 3,
      one(google_compute_region_instance_group_manager.server["sessions"].auto_healing_policies).initial_delay_sec == 1200,
    ])
    error_message = "A setting of updates has no effect."
  }
}

run "memory_cannot_be_managed" {
  command = plan

  variables {
    servers = { pages = { backend = "memory", managed = true } }
  }

  expect_failures = [var.servers]
}

run "zones_of_single_servers" {
  command = plan

  variables {
    servers = { pages = { backend = "memory", zones = ["europe-west1-b"] } }
  }

  expect_failures = [var.servers]
}

run "zones_of_another_region" {
  command = plan

  variables {
    servers = { a = { backend = "bucket", zones = ["europe-west1-b", "us-central1-a"] } }
  }

  expect_failures = [google_compute_instance_template.server]
}

run "updates_of_nothing" {
  command = plan

  variables {
    updates = { max_surge = 0 }
  }

  expect_failures = [var.updates]
}

run "updates_of_another_type" {
  command = plan

  variables {
    updates = { type = "NEVER" }
  }

  expect_failures = [var.updates]
}

run "too_long_a_delay" {
  command = plan

  variables {
    updates = { initial_delay = 7200 }
  }

  expect_failures = [var.updates]
}

run "group_with_the_name_of_a_server" {
  command = plan

  variables {
    servers = {
      pages   = { backend = "memory", count = 2 }
      pages-2 = { backend = "bucket" }
    }
  }

  expect_failures = [var.servers]
}

run "repairs_use_what_is_still_in_the_bucket" {
  command = plan

  assert {
    condition     = one(google_compute_region_instance_group_manager.server["sessions"].instance_lifecycle_policy).force_update_on_repair == "YES"
    error_message = "A VM would be repaired with a package that no longer exists."
  }
}

# With only the project set, everything is private.

mock_provider "google" {}

variables {
  project = "test-project"
  servers = {
    bucket = { backend = "bucket" }
    pages  = { backend = "memory" }
  }
}

run "no_vm_has_an_address_on_the_internet" {
  command = plan

  variables {
    load_generators = { count = 1 }
  }

  assert {
    condition = alltrue([for vm in concat(values(google_compute_instance.server), google_compute_instance.load, values(google_compute_instance_template.server)) :
      length(vm.network_interface) == 1 && length(vm.network_interface[0].access_config) == 0
    ])
    error_message = "A VM has an address on the internet."
  }

  assert {
    condition     = length(google_compute_router_nat.nat) == 1 && google_compute_subnetwork.subnet[0].private_ip_google_access
    error_message = "A VM cannot reach packages or the bucket."
  }
}

run "the_firewall_lets_in_the_subnet_and_iap" {
  command = plan

  assert {
    condition     = google_compute_firewall.clients[0].source_ranges == toset(["10.42.0.0/24"])
    error_message = "Clients outside the subnet may connect to the servers."
  }

  assert {
    condition = length(google_compute_firewall.clients[0].allow) == 1 && alltrue([for allow in google_compute_firewall.clients[0].allow :
      allow.protocol == "tcp" && allow.ports == tolist(["11211"])
    ])
    error_message = "Ports other than memlite's are open."
  }

  assert {
    condition     = google_compute_firewall.clients[0].target_tags == toset(["memlite-server"]) && google_compute_instance_template.server["bucket"].tags == toset(["memlite-server"]) && google_compute_instance.server["pages-1"].tags == toset(["memlite-server"])
    error_message = "The rule for clients does not apply only to servers."
  }

  assert {
    condition     = google_compute_firewall.ssh[0].source_ranges == toset(["35.235.240.0/20"])
    error_message = "SSH is open to sources other than Identity-Aware Proxy."
  }

  assert {
    condition = length(google_compute_firewall.ssh[0].allow) == 1 && alltrue([for allow in google_compute_firewall.ssh[0].allow :
      allow.protocol == "tcp" && allow.ports == tolist(["22"])
    ])
    error_message = "The rule for SSH opens other ports."
  }
}

run "ranges_that_were_given_are_added" {
  command = plan

  variables {
    client_ranges = ["10.8.0.0/16", "192.168.4.0/24"]
    port          = 12000
  }

  assert {
    condition     = google_compute_firewall.clients[0].source_ranges == toset(["10.42.0.0/24", "10.8.0.0/16", "192.168.4.0/24"])
    error_message = "The ranges differ from the variable."
  }

  assert {
    condition     = one(google_compute_firewall.clients[0].allow).ports == tolist(["12000"])
    error_message = "The port differs from the variable."
  }
}

run "addresses_on_the_internet_if_asked_for" {
  command = plan

  variables {
    external_addresses = true
  }

  assert {
    condition     = length(google_compute_instance.server["pages-1"].network_interface[0].access_config) == 1 && length(google_compute_instance_template.server["bucket"].network_interface[0].access_config) == 1
    error_message = "There is no address."
  }

  assert {
    condition     = length(google_compute_router_nat.nat) == 0 && length(google_compute_router.router) == 0
    error_message = "Cloud NAT is created, but not needed."
  }
}

run "vms_are_shielded" {
  command = plan

  variables {
    load_generators = { count = 1 }
  }

  assert {
    condition = alltrue(flatten([for vm in concat(values(google_compute_instance.server), google_compute_instance.load, values(google_compute_instance_template.server)) : [
      vm.shielded_instance_config[0].enable_secure_boot,
      vm.shielded_instance_config[0].enable_vtpm,
      vm.shielded_instance_config[0].enable_integrity_monitoring,
      vm.metadata.enable-oslogin == "TRUE",
      vm.metadata.block-project-ssh-keys == "TRUE",
    ]]))
    error_message = "A VM lacks Secure Boot, a TPM, integrity monitoring or OS Login."
  }

  assert {
    condition     = google_compute_instance.server["pages-1"].desired_status == "RUNNING" && google_compute_region_instance_group_manager.server["bucket"].target_size == 1
    error_message = "The servers are not running."
  }
}

run "the_bucket_is_private_and_cheap" {
  command = plan

  assert {
    condition     = google_storage_bucket.bucket.name == "test-project-memlite" && google_storage_bucket.bucket.location == "EUROPE-WEST1"
    error_message = "Its name or location is not the default."
  }

  assert {
    condition     = google_storage_bucket.bucket.uniform_bucket_level_access && google_storage_bucket.bucket.public_access_prevention == "enforced"
    error_message = "It could become public."
  }

  assert {
    condition     = google_storage_bucket.bucket.force_destroy == false
    error_message = "Destroying would remove items."
  }

  assert {
    condition     = google_storage_bucket.bucket.soft_delete_policy[0].retention_duration_seconds == 0
    error_message = "Overwritten items would be kept and billed."
  }

  assert {
    condition = alltrue([
      length(google_storage_bucket.bucket.lifecycle_rule) == 1,
      one(google_storage_bucket.bucket.lifecycle_rule[0].action).type == "Delete",
      one(google_storage_bucket.bucket.lifecycle_rule[0].condition).days_since_custom_time == 1,
      one(google_storage_bucket.bucket.lifecycle_rule[0].condition).matches_prefix == tolist(["items/"]),
    ])
    error_message = "Expired items are not removed, or other items are."
  }
}

run "the_bucket_as_told" {
  command = plan

  variables {
    bucket_name                   = "my-items"
    bucket_location               = "eu"
    bucket_force_destroy          = true
    bucket_soft_delete_seconds    = 604800
    bucket_days_since_custom_time = null
  }

  assert {
    condition = alltrue([
      google_storage_bucket.bucket.name == "my-items",
      google_storage_bucket.bucket.location == "EU",
      google_storage_bucket.bucket.force_destroy,
      google_storage_bucket.bucket.soft_delete_policy[0].retention_duration_seconds == 604800,
      length(google_storage_bucket.bucket.lifecycle_rule) == 0,
    ])
    error_message = "A variable of the bucket has no effect."
  }
}

run "servers_may_what_they_need" {
  command = plan

  assert {
    condition     = toset(keys(google_storage_bucket_iam_member.server)) == toset(["roles/storage.objectUser", "roles/storage.legacyBucketReader"])
    error_message = "The roles on the bucket are wrong."
  }

  assert {
    condition     = toset(keys(google_project_iam_member.server)) == toset(["roles/logging.logWriter", "roles/monitoring.metricWriter"])
    error_message = "The roles in the project are wrong."
  }

  assert {
    condition     = length(google_service_account.load) == 0
    error_message = "There is a service account for load generators, but no load generators."
  }
}

run "stopped_vms" {
  command = plan

  variables {
    desired_status  = "TERMINATED"
    load_generators = { count = 1 }
    monitoring      = { enabled = true }
  }

  assert {
    condition     = google_compute_instance.server["pages-1"].desired_status == "TERMINATED" && google_compute_instance.load[0].desired_status == "TERMINATED" && google_compute_region_instance_group_manager.server["bucket"].target_size == 0
    error_message = "A VM is still running."
  }

  assert {
    condition     = length(google_monitoring_alert_policy.down) + length(google_monitoring_alert_policy.silent) + length(google_monitoring_alert_policy.failed) == 0
    error_message = "There would be an alert for VMs that were stopped on purpose."
  }
}

run "apis_stay_enabled" {
  command = plan

  assert {
    condition     = length(google_project_service.apis) == 7 && alltrue([for api in google_project_service.apis : !api.disable_on_destroy])
    error_message = "Destroying would disable APIs that other resources use."
  }
}

run "apis_are_left_alone" {
  command = plan

  variables {
    enable_apis = false
  }

  assert {
    condition     = length(google_project_service.apis) == 0
    error_message = "APIs are enabled regardless of the variable."
  }
}

# Addresses, names, and existing networks.

mock_provider "google" {
  # Addresses like Google's, one for each.
  mock_resource "google_compute_address" {
    defaults = { address = "10.42.0.9" }
  }
}

variables {
  project         = "test-project"
  load_generators = { count = 1 }
  servers = {
    bucket = { backend = "bucket" }
    pages  = { backend = "memory", count = 2 }
  }
}

run "addresses_stay" {
  assert {
    condition     = keys(google_compute_address.server) == ["bucket", "pages-1", "pages-2"] && alltrue([for address in google_compute_address.server : address.address_type == "INTERNAL"])
    error_message = "A server or group has no address of its own, or a public one."
  }

  assert {
    condition     = google_compute_instance.server["pages-1"].network_interface[0].network_ip == google_compute_address.server["pages-1"].address
    error_message = "The server's address is wrong."
  }

  assert {
    condition     = output.bench_targets == ["10.42.0.9:11211=bucket", "10.42.0.9:11211=pages-1", "10.42.0.9:11211=pages-2"]
    error_message = "The targets are wrong."
  }
}

run "a_study" {
  command = plan

  assert {
    condition = alltrue([
      google_compute_firewall.study[0].source_tags == toset(["memlite-load", "memlite-server"]),
      google_compute_firewall.study[0].target_tags == toset(["memlite-server"]),
      one(google_compute_firewall.study[0].allow).ports == tolist(["21000-21099"]),
      google_compute_firewall.study_ssh[0].source_tags == toset(["memlite-load"]),
      google_compute_firewall.study_ssh[0].target_tags == toset(["memlite-server"]),
      one(google_compute_firewall.study_ssh[0].allow).ports == tolist(["22"]),
    ])
    error_message = "A study cannot connect to its servers, or others can."
  }

  assert {
    condition     = output.study.tag == "memlite-server" && output.study.ports == "21000:21099"
    error_message = "The output for gcp-bench has the wrong VMs or ports."
  }
}

run "no_study_without_load_generators" {
  command = plan

  variables {
    load_generators = { count = 0 }
  }

  assert {
    condition     = length(google_compute_firewall.study) + length(google_compute_firewall.study_ssh) == 0
    error_message = "There is an unnecessary rule."
  }
}

run "names" {
  assert {
    condition = alltrue([
      google_dns_managed_zone.zone[0].dns_name == "memlite.internal.",
      google_dns_managed_zone.zone[0].visibility == "private",
      [for network in one(google_dns_managed_zone.zone[0].private_visibility_config).networks : network.network_url] == [google_compute_network.network[0].id],
    ])
    error_message = "The zone is wrong, or is visible in other networks."
  }

  assert {
    condition     = [for record in values(google_dns_record_set.server) : record.name] == ["bucket.memlite.internal.", "pages-1.memlite.internal.", "pages-2.memlite.internal."]
    error_message = "The names are wrong."
  }

  assert {
    condition     = google_dns_record_set.server["bucket"].rrdatas == tolist(["10.42.0.9"])
    error_message = "A name has the wrong address."
  }

  assert {
    condition     = output.servers["memlite-pages-2"].host == "pages-2.memlite.internal" && strcontains(output.pymemcache.pages, "HashClient([(\"pages-1.memlite.internal\", 11211), (\"pages-2.memlite.internal\", 11211)])")
    error_message = "The output shows the wrong names for clients."
  }
}

run "no_names" {
  variables {
    dns_domain = null
  }

  assert {
    condition     = length(google_dns_managed_zone.zone) == 0 && length(google_dns_record_set.server) == 0 && !contains(keys(google_project_service.apis), "dns")
    error_message = "There is a DNS zone although dns_domain is null."
  }

  assert {
    condition     = output.servers["memlite-bucket"].host == "10.42.0.9"
    error_message = "The output shows a name that does not exist."
  }
}

run "names_in_other_networks" {
  command = plan

  variables {
    dns_domain   = "cache.example.com"
    dns_networks = ["projects/other/global/networks/clients"]
  }

  assert {
    condition     = contains([for network in one(google_dns_managed_zone.zone[0].private_visibility_config).networks : network.network_url], "projects/other/global/networks/clients") && google_dns_record_set.server["pages-1"].name == "pages-1.cache.example.com."
    error_message = "The names are not visible in the other network."
  }
}

run "a_shared_network" {
  command = plan

  variables {
    client_ranges = ["10.8.0.0/16"]
    existing_network = {
      network    = "projects/host-project/global/networks/shared"
      subnetwork = "projects/host-project/regions/europe-west1/subnetworks/shared"
    }
  }

  assert {
    condition     = length(google_compute_network.network) + length(google_compute_subnetwork.subnet) + length(google_compute_router.router) + length(google_compute_router_nat.nat) == 0
    error_message = "A network is created in addition to the existing one."
  }

  assert {
    condition = alltrue(concat(
      [for vm in concat(values(google_compute_instance.server), google_compute_instance.load, values(google_compute_instance_template.server)) :
      vm.network_interface[0].subnetwork == "projects/host-project/regions/europe-west1/subnetworks/shared"],
      [for address in values(google_compute_address.server) :
      address.project == "test-project" && address.subnetwork == "projects/host-project/regions/europe-west1/subnetworks/shared"],
    ))
    error_message = "A resource is not in the existing network."
  }

  assert {
    condition = alltrue([for rule in concat(google_compute_firewall.clients, google_compute_firewall.ssh, google_compute_firewall.health_checks) :
      rule.project == "host-project" && rule.network == "projects/host-project/global/networks/shared" && length(rule.target_tags) > 0
    ])
    error_message = "The rules are not in the host project, or apply to other VMs."
  }

  assert {
    condition     = google_compute_firewall.clients[0].source_ranges == toset(["10.8.0.0/16"]) && google_compute_firewall.clients[0].source_tags == toset(["memlite-load"])
    error_message = "Other machines in the shared subnet may connect."
  }

  assert {
    condition     = google_dns_managed_zone.zone[0].project == "test-project" && [for network in one(google_dns_managed_zone.zone[0].private_visibility_config).networks : network.network_url] == ["projects/host-project/global/networks/shared"]
    error_message = "The names are not visible in the shared network."
  }

  assert {
    condition     = google_compute_forwarding_rule.server["bucket"].network == "projects/host-project/global/networks/shared" && google_compute_forwarding_rule.server["bucket"].project == "test-project"
    error_message = "The load balancer is not in the shared network."
  }

  assert {
    condition     = output.network == "projects/host-project/global/networks/shared"
    error_message = "The output shows the wrong network."
  }
}

run "rules_of_others" {
  command = plan

  variables {
    existing_network = {
      network               = "https://www.googleapis.com/compute/v1/projects/host-project/global/networks/shared"
      subnetwork            = "https://www.googleapis.com/compute/v1/projects/host-project/regions/europe-west1/subnetworks/shared"
      create_firewall_rules = false
    }
  }

  assert {
    condition     = length(google_compute_firewall.clients) + length(google_compute_firewall.ssh) + length(google_compute_firewall.health_checks) == 0
    error_message = "There is a rule although create_firewall_rules is false."
  }
}

run "network_by_its_name_alone" {
  command = plan

  variables {
    existing_network = { network = "shared", subnetwork = "projects/p/regions/europe-west1/subnetworks/shared" }
  }

  expect_failures = [var.existing_network]
}

run "network_instead_of_a_subnet" {
  command = plan

  variables {
    existing_network = { network = "projects/p/global/networks/shared", subnetwork = "projects/p/global/networks/shared" }
  }

  expect_failures = [var.existing_network]
}

run "domain_with_a_dot_at_the_end" {
  command = plan

  variables {
    dns_domain = "memlite.internal."
  }

  expect_failures = [var.dns_domain]
}

run "network_of_names_by_its_name_alone" {
  command = plan

  variables {
    dns_networks = ["clients"]
  }

  expect_failures = [var.dns_networks]
}

run "subnet_of_another_region" {
  command = plan

  variables {
    existing_network = { network = "projects/p/global/networks/n", subnetwork = "projects/p/regions/us-central1/subnetworks/s" }
  }

  expect_failures = [google_compute_address.server]
}

# A cluster: nodes that find each other in the bucket, and proxies behind one address.

mock_provider "google" {}

variables {
  project = "test-project"
  servers = {}
  cluster = {}
}

run "none_unless_asked_for" {
  command = plan

  variables {
    servers = { bucket = { backend = "bucket" } }
    cluster = null
  }

  assert {
    condition     = keys(google_compute_region_instance_group_manager.server) == ["bucket"] && length(google_compute_firewall.cluster) == 0
    error_message = "There are nodes or proxies by default."
  }

  assert {
    condition     = output.cluster == null && output.proxies == null && !strcontains(google_compute_instance_template.server["bucket"].metadata.startup-script, "MEMLITE_NAME")
    error_message = "A server is configured as a node."
  }
}

run "three_nodes_and_two_proxies" {
  command = plan

  assert {
    condition     = { for group, manager in google_compute_region_instance_group_manager.server : group => manager.target_size } == { nodes = 3, proxies = 2 }
    error_message = "The number of VMs is wrong."
  }

  assert {
    condition     = keys(google_compute_forwarding_rule.server) == ["proxies"] && keys(google_compute_address.server) == ["proxies"] && google_compute_forwarding_rule.server["proxies"].load_balancing_scheme == "INTERNAL"
    error_message = "The proxies are not behind an internal address, or the nodes are."
  }

  assert {
    condition     = google_dns_record_set.server["proxies"].name == "proxies.memlite.internal." && output.proxies.host == "proxies.memlite.internal" && output.proxies.count == 2
    error_message = "The output shows the wrong name for clients."
  }

  assert {
    condition     = output.cluster.url == "gs://test-project-memlite/cluster" && output.cluster.nodes == 3 && output.cluster.zones == null
    error_message = "The output shows the wrong cluster."
  }

  assert {
    condition     = keys(google_compute_health_check.healing) == ["nodes", "proxies"] && one(google_compute_region_instance_group_manager.server["nodes"].auto_healing_policies).initial_delay_sec == 900
    error_message = "A failed node is not replaced, or is replaced while memlite is still being installed."
  }

  assert {
    condition = alltrue([for template in values(google_compute_instance_template.server) :
      length(template.network_interface[0].access_config) == 0 && template.tags == toset(["memlite-server"])
    ])
    error_message = "A node or a proxy can be reached from the internet, or the firewall rules do not apply to it."
  }

  assert {
    condition = alltrue([
      google_compute_firewall.cluster[0].source_tags == toset(["memlite-server"]),
      google_compute_firewall.cluster[0].target_tags == toset(["memlite-server"]),
      one(google_compute_firewall.cluster[0].allow).ports == tolist(["11211"]),
    ])
    error_message = "The proxies cannot connect to the nodes, or others can."
  }

  assert {
    condition     = length(google_compute_firewall.health_checks) == 1
    error_message = "Google's health checks cannot reach the nodes and proxies."
  }

  assert {
    condition     = keys(output.servers) == [] && keys(output.pymemcache) == ["proxies"] && keys(output.ssh) == ["memlite-nodes", "memlite-proxies"]
    error_message = "The outputs are wrong."
  }
}

run "settings_of_a_node" {
  command = plan

  variables {
    cluster = { memory_limit = 1024, options = { max_item_size = "2m" } }
  }

  assert {
    condition = local.environments.nodes == join("\n", [
      "MEMLITE_BACKEND=\"memory://\"",
      "MEMLITE_JOIN=\"gs://test-project-memlite/cluster\"",
      "MEMLITE_LISTEN=\"0.0.0.0\"",
      "MEMLITE_MAX_ITEM_SIZE=\"2m\"",
      "MEMLITE_MEMORY_LIMIT=\"1024\"",
      "MEMLITE_PORT=\"11211\"",
    ])
    error_message = "The settings of a node are wrong."
  }

  assert {
    condition     = strcontains(google_compute_instance_template.server["nodes"].metadata.startup-script, "\nMEMLITE_NAME=\"$name\"\nMEMLITE_ADVERTISE=\"$address:11211\"\n")
    error_message = "A node has no name, or no address for the proxies."
  }
}

run "settings_of_a_proxy" {
  command = plan

  variables {
    port    = 12000
    proxies = { count = 1, options = { conn_limit = "5000", pidfile = "/run/memlite/%" } }
  }

  assert {
    condition = strcontains(google_compute_instance_template.server["proxies"].metadata.startup-script,
      "\nExecStart=/opt/memlite/current/bin/memlite proxy \"--cluster=gs://test-project-memlite/cluster\" \"--conn-limit=5000\" \"--listen=0.0.0.0\" \"--pidfile=/run/memlite/%%\" \"--port=12000\"\n"
    )
    error_message = "The command line of a proxy is wrong."
  }

  assert {
    condition     = !strcontains(google_compute_instance_template.server["proxies"].metadata.startup-script, "\nMEMLITE_")
    error_message = "A proxy has a server's settings."
  }
}

run "passwords_and_tls" {
  command = plan

  variables {
    secrets = { users = "users", node_password = "password", tls_certificate = "chain", tls_key = "key" }
  }

  assert {
    condition = strcontains(google_compute_instance_template.server["proxies"].metadata.startup-script, join(" ", [
      "memlite proxy \"--auth-file=/etc/memlite/secrets/users\" \"--cluster=gs://test-project-memlite/cluster\"",
      "\"--extended=ssl_chain_cert=/etc/memlite/secrets/tls_certificate,ssl_key=/etc/memlite/secrets/tls_key\"",
      "\"--listen=0.0.0.0\" \"--node-password-file=/etc/memlite/secrets/node_password\" \"--node-user=proxy\" \"--port=11211\"",
      "--enable-ssl --node-tls --node-tls-skip-verify\n",
    ]))
    error_message = "A proxy requires less authentication than the nodes, or cannot log in to them."
  }

  assert {
    condition     = strcontains(local.environments.nodes, "MEMLITE_AUTH_FILE=\"/etc/memlite/secrets/users\"") && strcontains(local.environments.nodes, "MEMLITE_ENABLE_SSL=\"true\"")
    error_message = "A node requires no authentication."
  }

  assert {
    condition     = strcontains(google_compute_instance_template.server["proxies"].metadata.startup-script, "\nnode_password projects/test-project/secrets/password/versions/latest\n") && !strcontains(google_compute_instance_template.server["nodes"].metadata.startup-script, "\nnode_password ")
    error_message = "A proxy does not receive its password, or a node does."
  }

  assert {
    condition     = google_secret_manager_secret_iam_member.server["node_password"].secret_id == "password"
    error_message = "Proxies have no permission to read their password."
  }
}

run "updates_leave_nodes_alone" {
  command = plan

  assert {
    condition = { for group, manager in google_compute_region_instance_group_manager.server : group => one(manager.update_policy).type } == {
      nodes   = "OPPORTUNISTIC"
      proxies = "PROACTIVE"
    } && one(google_compute_region_instance_group_manager.server["nodes"].update_policy).instance_redistribution_type == "NONE"
    error_message = "All nodes would be replaced at once, and would lose their items."
  }
}

run "nodes_without_proxies" {
  command = plan

  variables {
    proxies = { count = 0 }
  }

  assert {
    condition     = keys(google_compute_region_instance_group_manager.server) == ["nodes"] && output.proxies == null && length(google_compute_address.server) == 0
    error_message = "There are proxies, or addresses for them."
  }
}

run "beside_servers_and_watched" {
  command = plan

  variables {
    servers    = { pages = { backend = "memory" } }
    cluster    = { nodes = 5, zones = ["europe-west1-b"] }
    monitoring = { enabled = true }
  }

  assert {
    condition     = { for group, alert in google_monitoring_alert_policy.silent : group => one(one(alert.conditions).condition_threshold).threshold_value } == { nodes = 5, pages = 1, proxies = 2 }
    error_message = "There is no alert for a missing node or proxy."
  }

  assert {
    condition     = google_compute_region_instance_group_manager.server["nodes"].distribution_policy_zones == toset(["europe-west1-b"])
    error_message = "The nodes are in the wrong zones."
  }
}

run "stopped" {
  command = plan

  variables {
    desired_status = "TERMINATED"
  }

  assert {
    condition     = alltrue([for manager in values(google_compute_region_instance_group_manager.server) : manager.target_size == 0])
    error_message = "Nodes or proxies are still running."
  }
}

run "proxies_of_nothing" {
  command = plan

  variables {
    cluster = null
    proxies = { count = 1 }
  }

  expect_failures = [output.proxies]
}

run "no_node" {
  command = plan

  variables {
    cluster = { nodes = 0 }
  }

  expect_failures = [var.cluster]
}

run "half_a_node" {
  command = plan

  variables {
    cluster = { nodes = 2.5 }
  }

  expect_failures = [var.cluster]
}

run "zones_that_are_regions" {
  command = plan

  variables {
    cluster = { zones = ["europe-west1"] }
  }

  expect_failures = [var.cluster]
}

run "no_zones" {
  command = plan

  variables {
    proxies = { zones = [] }
  }

  expect_failures = [var.proxies]
}

run "zones_of_another_region_for_nodes" {
  command = plan

  variables {
    cluster = { zones = ["us-central1-a"] }
  }

  expect_failures = [google_compute_instance_template.server]
}

run "a_node_with_a_backend" {
  command = plan

  variables {
    cluster = { options = { backend = "file:///tmp/cache.json" } }
  }

  expect_failures = [var.cluster]
}

run "a_node_that_joins_another_cluster" {
  command = plan

  variables {
    cluster = { options = { join = "gs://elsewhere/cluster" } }
  }

  expect_failures = [var.cluster]
}

run "a_nodes_option_with_a_quote" {
  command = plan

  variables {
    cluster = { options = { extended = "a\"b" } }
  }

  expect_failures = [var.cluster]
}

run "a_node_with_little_memory" {
  command = plan

  variables {
    cluster = { memory_limit = 0 }
  }

  expect_failures = [var.cluster]
}

run "a_node_with_a_small_disk" {
  command = plan

  variables {
    cluster = { disk_size_gb = 5 }
  }

  expect_failures = [var.cluster]
}

run "a_proxy_with_nodes_of_its_own" {
  command = plan

  variables {
    proxies = { options = { nodes = "10.0.0.1" } }
  }

  expect_failures = [var.proxies]
}

run "a_proxy_that_spreads_keys_otherwise" {
  command = plan

  variables {
    proxies = { options = { hash = "jump" } }
  }

  expect_failures = [var.proxies]
}

run "a_proxy_with_another_password" {
  command = plan

  variables {
    proxies = { options = { node-password-file = "/tmp/password" } }
  }

  expect_failures = [var.proxies]
}

run "a_proxys_option_with_a_dollar_sign" {
  command = plan

  variables {
    proxies = { options = { pidfile = "$$" } }
  }

  expect_failures = [var.proxies]
}

run "fewer_than_no_proxies" {
  command = plan

  variables {
    proxies = { count = -1 }
  }

  expect_failures = [var.proxies]
}

run "users_without_the_proxies_password" {
  command = plan

  variables {
    secrets = { users = "users" }
  }

  expect_failures = [output.proxies]
}

run "a_password_without_users" {
  command = plan

  variables {
    secrets = { node_password = "password" }
  }

  expect_failures = [var.secrets]
}

run "a_password_without_a_cluster" {
  command = plan

  variables {
    cluster = null
    secrets = { users = "users", node_password = "password" }
  }

  expect_failures = [output.cluster]
}

run "certificates_of_clients" {
  command = plan

  variables {
    secrets = { tls_certificate = "chain", tls_key = "key", tls_client_ca = "ca" }
  }

  expect_failures = [output.cluster]
}

run "a_group_with_the_nodes_name" {
  command = plan

  variables {
    servers = { nodes = { backend = "bucket" } }
  }

  expect_failures = [output.cluster]
}

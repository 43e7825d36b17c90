locals {
  bucket     = "gs://${google_storage_bucket.bucket.name}"
  bucket_url = "${local.bucket}/items"

  # One for each single server and each managed group, and for a cluster's proxies.
  targets = [for name, server in merge(local.servers, local.balanced) : "${local.addresses[name]}:${var.port}=${name}" if server.count > 0]
}

output "project" {
  description = "Project of all resources."
  value       = var.project
}

output "servers" {
  description = "Single servers and managed groups by name: host, address and port for clients, group, backend, number of VMs, zones (null: selected by Google)."
  value = merge(
    { for name, server in local.servers : "${var.name}-${name}" => {
      host    = local.hosts[name]
      address = local.addresses[name]
      port    = var.port
      group   = server.group
      backend = server.backend
      count   = 1
      zones   = [google_compute_instance.server[name].zone]
    } },
    { for group, settings in local.managed : "${var.name}-${group}" => {
      host    = local.hosts[group]
      address = local.addresses[group]
      port    = var.port
      group   = group
      backend = settings.backend
      count   = settings.count
      zones   = local.group_zones[group]
    } if settings.count > 0 },
  )
}

output "cluster" {
  description = "The cluster, null without one: URL for `memlite cluster show` and `--cluster`, number of nodes, zones (null: selected by Google)."
  value = var.cluster == null ? null : {
    url   = local.cluster_url
    nodes = var.cluster.nodes
    zones = local.group_zones.nodes
  }

  precondition {
    condition     = var.cluster == null || length(setintersection(keys(var.servers), ["nodes", "proxies"])) == 0
    error_message = "With a cluster, no group of servers can be named nodes or proxies, which are the names of the cluster's groups."
  }

  precondition {
    condition     = var.cluster == null || var.secrets.tls_client_ca == null
    error_message = "tls_client_ca cannot be used with a cluster: its nodes would refuse the proxies, which have no client certificates."
  }

  precondition {
    condition     = var.secrets.node_password == null || var.cluster != null
    error_message = "node_password requires a cluster, but cluster is null."
  }
}

output "proxies" {
  description = "The proxies of the cluster, null without any: host, address and port for clients, number of VMs, zones (null: selected by Google)."
  value = local.proxy_count == 0 ? null : {
    host    = local.hosts.proxies
    address = local.addresses.proxies
    port    = var.port
    count   = local.proxy_count
    zones   = local.group_zones.proxies
  }

  precondition {
    condition     = local.proxy_count == 0 || var.cluster != null
    error_message = "proxies require a cluster: set cluster, such as cluster = { nodes = 3 }, or leave proxies out."
  }

  precondition {
    condition     = local.proxy_count == 0 || (var.secrets.users == null) == (var.secrets.node_password == null)
    error_message = "With secrets.users, the nodes also require a password from the proxies: set secrets.node_password, and add a line proxy:<password> to the users."
  }
}

output "load_generators" {
  description = "Load generators by name: address and zone."
  value = { for vm in google_compute_instance.load : vm.name => {
    address = vm.network_interface[0].network_ip
    zone    = vm.zone
  } }
}

output "bucket_url" {
  description = "Value of `--backend` to share the servers' items."
  value       = local.bucket_url
}

output "network" {
  description = "ID of the network, for peering with the clients' network."
  value       = local.network
}

output "service_account" {
  description = "Email of the servers' service account."
  value       = google_service_account.server.email
}

output "pymemcache" {
  description = "For each group with servers, and for proxies, Python code that stores and reads an item, to run on a VM in the network."
  value = { for group, settings in merge(var.servers, local.proxies) : group => join("\n", [
    "from pymemcache.client.hash import HashClient",
    "client = HashClient([${join(", ", [for name in contains(keys(local.balanced), group) ? [group] : [for name, server in local.servers : name if server.group == group] :
      "(\"${local.hosts[name]}\", ${var.port})"
    ])}])",
    "client.set(\"greeting\", \"hello\")",
    "print(client.get(\"greeting\"))",
  ]) if settings.count > 0 }
}

output "bench_targets" {
  description = "Values of `memlite bench compare --target`, one per single server and managed group, and one for proxies."
  value       = local.targets
}

output "study" {
  description = "For `gcp-bench --study`: the network tag of all server VMs, and the ports that a study may use."
  value = {
    tag   = local.server_tag
    ports = "${local.study_ports.first}:${local.study_ports.last}"
  }
}

output "bench" {
  description = "Command that compares the servers, to run on a load generator."
  value       = join(" ", concat(["memlite bench compare --backends ''"], [for target in local.targets : "--target ${target}"]))
}

output "ssh" {
  description = "Commands that open a shell on each VM, through Identity-Aware Proxy; for a managed group, on one of its VMs."
  value = merge(
    { for vm in concat(values(google_compute_instance.server), google_compute_instance.load) :
      vm.name => "gcloud compute ssh ${vm.name} --project ${var.project} --zone ${vm.zone} --tunnel-through-iap"
    },
    { for group, settings in local.groups : "${var.name}-${group}" => join(" ", [
      "gcloud compute ssh $(gcloud compute instance-groups managed list-instances ${var.name}-${group}",
      "--project ${var.project} --region ${var.region} --limit 1 --uri) --project ${var.project} --tunnel-through-iap",
    ]) if settings.count > 0 },
  )
}

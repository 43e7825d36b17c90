locals {
  bucket     = "gs://${google_storage_bucket.bucket.name}"
  bucket_url = "${local.bucket}/items"

  addresses = { for name, vm in google_compute_instance.server : name => vm.network_interface[0].network_ip }
  targets   = [for name in keys(local.servers) : "${local.addresses[name]}:${var.port}=${name}"]
}

output "project" {
  description = "Project of all resources."
  value       = var.project
}

output "servers" {
  description = "Servers by name: address and port for clients, group, backend, zone."
  value = { for name, vm in google_compute_instance.server : vm.name => {
    address = local.addresses[name]
    port    = var.port
    group   = local.servers[name].group
    backend = local.servers[name].backend
    zone    = vm.zone
  } }
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
  value       = google_compute_network.network.id
}

output "service_account" {
  description = "Email of the servers' service account."
  value       = google_service_account.server.email
}

output "pymemcache" {
  description = "For each group with servers, Python code that stores and reads an item, to run on a VM in the network."
  value = { for group, settings in var.servers : group => join("\n", [
    "from pymemcache.client.hash import HashClient",
    "client = HashClient([${join(", ", [for name, server in local.servers :
      "(\"${local.addresses[name]}\", ${var.port})" if server.group == group
    ])}])",
    "client.set(\"greeting\", \"hello\")",
    "print(client.get(\"greeting\"))",
  ]) if settings.count > 0 }
}

output "bench_targets" {
  description = "Values of `memlite bench compare --target`, one per server."
  value       = local.targets
}

output "bench" {
  description = "Command that compares the servers, to run on a load generator."
  value       = join(" ", concat(["memlite bench compare --backends ''"], [for target in local.targets : "--target ${target}"]))
}

output "ssh" {
  description = "Commands that open a shell on each VM, through Identity-Aware Proxy."
  value = { for vm in concat(values(google_compute_instance.server), google_compute_instance.load) :
    vm.name => "gcloud compute ssh ${vm.name} --project ${var.project} --zone ${vm.zone} --tunnel-through-iap"
  }
}

output "project" {
  description = "Project of all resources."
  value       = module.memlite.project
}

output "servers" {
  description = "Servers by name."
  value       = module.memlite.servers
}

output "load_generators" {
  description = "Load generators by name."
  value       = module.memlite.load_generators
}

output "bucket_url" {
  description = "Value of `--backend` to share the servers' items."
  value       = module.memlite.bucket_url
}

output "pymemcache" {
  description = "Python code that stores and reads an item."
  value       = module.memlite.pymemcache
}

output "bench_targets" {
  description = "Values of `memlite bench compare --target`, one per server."
  value       = module.memlite.bench_targets
}

output "bench" {
  description = "Command that compares the servers."
  value       = module.memlite.bench
}

output "ssh" {
  description = "Commands that open a shell on each VM."
  value       = module.memlite.ssh
}

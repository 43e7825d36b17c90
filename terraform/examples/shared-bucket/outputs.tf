output "project" {
  description = "Project everything is in."
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
  description = "Where the servers of the bucket keep their items."
  value       = module.memlite.bucket_url
}

output "pymemcache" {
  description = "Python that stores and reads."
  value       = module.memlite.pymemcache
}

output "bench_targets" {
  description = "Servers as the load tester takes them."
  value       = module.memlite.bench_targets
}

output "bench" {
  description = "Command that compares them."
  value       = module.memlite.bench
}

output "ssh" {
  description = "Commands that open a shell on each VM."
  value       = module.memlite.ssh
}

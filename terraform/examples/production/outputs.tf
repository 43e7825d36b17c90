output "servers" {
  description = "Groups of servers by name: host, address and port for clients."
  value       = module.memlite.servers
}

output "ssh" {
  description = "Commands that open a shell on a VM of each group."
  value       = module.memlite.ssh
}

output "proxies" {
  description = "The proxies: host, address and port for clients."
  value       = module.memlite.proxies
}

output "cluster" {
  description = "The cluster: URL for `memlite cluster show`, number of nodes."
  value       = module.memlite.cluster
}

# A cluster: nodes, each of which holds a share of the items, and proxies in front of them. Both are managed groups, like
# those of servers (groups.tf). Nodes register in the bucket, under cluster/, where the proxies find them.

locals {
  cluster_url = "${local.bucket}/cluster"

  nodes = var.cluster == null ? {} : {
    nodes = merge(var.cluster, { backend = "memory", count = var.cluster.nodes, zone = null })
  }

  proxy_count = coalesce(var.proxies.count, var.cluster == null ? 0 : 2)
  proxies     = local.proxy_count == 0 ? {} : { proxies = merge(var.proxies, { count = local.proxy_count, zone = null }) }

  # A proxy has all its settings on its command line.
  proxy_options = merge(
    { for option, value in var.proxies.options : replace(option, "_", "-") => value },
    { cluster = local.cluster_url, listen = "0.0.0.0", port = var.port },
    var.secrets.users == null ? {} : { auth-file = "${local.secrets_folder}/users" },
    var.secrets.node_password == null ? {} : {
      node-user          = "proxy"
      node-password-file = "${local.secrets_folder}/node_password"
    },
    length(local.secrets_extended) == 0 ? {} : {
      extended = join(",", concat(compact([lookup(var.proxies.options, "extended", "")]), local.secrets_extended))
    },
  )

  # The nodes' certificate contains the proxies' name, not the names of short-lived VMs, so it cannot be verified.
  proxy_flags = local.tls ? ["--enable-ssl", "--node-tls", "--node-tls-skip-verify"] : []

  # Quoted for systemd, which expands percent signs.
  proxy_arguments = join(" ", concat(
    [for option, value in local.proxy_options : "\"--${option}=${replace(value, "%", "%%")}\""],
    local.proxy_flags,
  ))

  # The differences between the start-up scripts of nodes and proxies and those of servers.
  cluster_startup = {
    nodes = {
      identity = trimspace(templatefile("${path.module}/startup_node.sh.tftpl", { port = var.port }))
    }
    proxies = {
      unit = replace(local.startup.unit, "/(?m)^ExecStart=.*$/", "ExecStart=/opt/memlite/current/bin/memlite proxy ${local.proxy_arguments}")
      # The unit contains all settings.
      environment  = "# A proxy's settings are in its unit."
      secrets_list = join("\n", values(local.secrets_lines))
    }
  }
}

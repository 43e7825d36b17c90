variable "project" {
  description = "ID of the Google Cloud project in which everything is created."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "A project's ID has 6 to 30 lower-case letters, digits and hyphens, such as my-project-123; a project number is not accepted."
  }
}

variable "name" {
  description = "Prefix of all resource names. Two deployments in one project need different names."
  type        = string
  default     = "memlite"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,20}[a-z0-9])?$", var.name))
    error_message = "The name must have at most 22 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "region" {
  description = "Region of the subnet."
  type        = string
  default     = "europe-west1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "A region has a name such as europe-west1; with a letter appended, it is a zone."
  }
}

variable "zone" {
  description = "Zone of the VMs, unless a group sets its own. Default: the region's zone `b`, which every region has."
  type        = string
  default     = null

  validation {
    condition     = var.zone == null || can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", var.zone))
    error_message = "A zone has a name such as europe-west1-b."
  }
}

variable "labels" {
  description = "Labels of the bucket and the VMs, in addition to `memlite = <name>`."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "enable_apis" {
  description = "Enable the required APIs. They stay enabled when this is destroyed."
  type        = bool
  default     = true
  nullable    = false
}

variable "servers" {
  description = <<-END
    Groups of memlite servers. `backend` is `memory`, `file` (on the boot disk), `bucket` or `valkey`, which all such
    groups share. `memory_limit` is in megabytes. `options` are memlite's own: `{ near_cache = "64m" }` becomes
    `MEMLITE_NEAR_CACHE=64m`. `count` may be 0. Groups with a bucket or Valkey are managed instance groups behind one address,
    unless `managed` is false, in one `zone` or spread over `zones`, by default those that Google selects.
  END
  type = map(object({
    backend      = string
    count        = optional(number, 1)
    machine_type = optional(string, "e2-small")
    zone         = optional(string)
    disk_size_gb = optional(number, 10)
    disk_type    = optional(string, "pd-balanced")
    memory_limit = optional(number, 512)
    options      = optional(map(string), {})
    managed      = optional(bool)
    zones        = optional(list(string))
  }))
  default  = { bucket = { backend = "bucket" } }
  nullable = false

  validation {
    condition     = alltrue([for group in keys(var.servers) : can(regex("^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$", group))])
    error_message = "A group's name must have at most 20 lower-case letters, digits and hyphens, and begin with a letter."
  }

  validation {
    condition     = !contains(keys(var.servers), "load")
    error_message = "A group of servers cannot be named load, which is the name of the load generators."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : contains(["memory", "file", "bucket", "valkey"], group.backend)])
    error_message = "The backend must be memory, file, bucket or valkey."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : group.count >= 0 && group.count <= 100 && floor(group.count) == group.count])
    error_message = "The count must be a whole number from 0 to 100."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : group.zone == null || can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", group.zone))])
    error_message = "A zone has a name such as europe-west1-b."
  }

  validation {
    condition = length(setintersection(
      [for name, group in var.servers : name if coalesce(group.managed, contains(["bucket", "valkey"], group.backend))],
      flatten([for name, group in var.servers : [for number in range(1, max(group.count, 0) + 1) : "${name}-${number}"] if !coalesce(group.managed, contains(["bucket", "valkey"], group.backend))]),
    )) == 0
    error_message = "A managed group cannot have the name of a single server, such as pages-1."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : group.managed != true || contains(["bucket", "valkey"], group.backend)])
    error_message = "Only servers with a bucket or Valkey can be managed: Google would replace the others with empty ones."
  }

  validation {
    condition = alltrue([for group in values(var.servers) : group.zones == null || (
      coalesce(group.managed, contains(["bucket", "valkey"], group.backend)) && group.zone == null && try(length(group.zones) > 0, false) &&
      try(alltrue([for zone in group.zones : can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", zone))]), false)
    )])
    error_message = "zones are names such as europe-west1-b, at least one, and only for managed groups, instead of zone."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : group.disk_size_gb >= 10 && floor(group.disk_size_gb) == group.disk_size_gb])
    error_message = "disk_size_gb must be a whole number, and at least the 10 that the image needs."
  }

  validation {
    condition     = alltrue([for group in values(var.servers) : group.memory_limit >= 1 && floor(group.memory_limit) == group.memory_limit])
    error_message = "memory_limit must be a whole number of megabytes."
  }

  validation {
    condition     = alltrue(flatten([for group in values(var.servers) : [for option in keys(group.options) : can(regex("^[a-z][a-z_-]*$", option))]]))
    error_message = "Options have the names in memlite --help, without the leading hyphens: near_cache or near-cache."
  }

  validation {
    # The firewall, the outputs and the bucket depend on address, port and backend. systemd would not find a server that
    # runs in the background or listens on a UNIX socket.
    condition = alltrue(flatten([for group in values(var.servers) : [for option in keys(group.options) :
      !contains(["auth_file", "backend", "config", "daemon", "enable_ssl", "listen", "memory_limit", "port", "unix_socket", "user"], replace(option, "-", "_"))
    ]]))
    error_message = "The module sets the options auth_file, backend, config, daemon, enable_ssl, listen, memory_limit, port, unix_socket and user; see its variables."
  }

  validation {
    # Values are written in double quotes into a file that systemd reads.
    condition     = alltrue(flatten([for group in values(var.servers) : [for value in values(group.options) : can(regex("^[^\"\\\\$`[:cntrl:]]*$", value))]]))
    error_message = "An option's value cannot contain double quotes, backslashes, dollar signs, backquotes or control characters."
  }
}

variable "valkey" {
  description = <<-END
    The Memorystore for Valkey for groups with `backend = "valkey"`; created only if there is such a group. Changes are
    acknowledged once `wait` replicas have them. `append_fsync` is `EVERY_SEC`, `ALWAYS` or `NEVER`. With
    `existing_network`, the network needs a service connection policy for `gcp-memorystore` in the region.
  END
  type = object({
    shards              = optional(number, 1)
    replicas            = optional(number, 1)
    node_type           = optional(string, "STANDARD_SMALL")
    wait                = optional(number, 0)
    append_fsync        = optional(string, "EVERY_SEC")
    deletion_protection = optional(bool, true)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.valkey.shards >= 1 && floor(var.valkey.shards) == var.valkey.shards
    error_message = "shards must be a whole number, and at least 1."
  }

  validation {
    condition     = contains([0, 1, 2, 3, 4, 5], var.valkey.replicas)
    error_message = "replicas must be a whole number from 0 to 5."
  }

  validation {
    condition     = contains(["SHARED_CORE_NANO", "STANDARD_SMALL", "HIGHMEM_MEDIUM", "HIGHMEM_XLARGE"], var.valkey.node_type)
    error_message = "node_type must be SHARED_CORE_NANO, STANDARD_SMALL, HIGHMEM_MEDIUM or HIGHMEM_XLARGE."
  }

  validation {
    condition     = var.valkey.wait >= 0 && var.valkey.wait <= var.valkey.replicas && floor(var.valkey.wait) == var.valkey.wait
    error_message = "wait must be a whole number, and at most replicas."
  }

  validation {
    condition     = contains(["EVERY_SEC", "ALWAYS", "NEVER"], var.valkey.append_fsync)
    error_message = "append_fsync must be EVERY_SEC, ALWAYS or NEVER."
  }
}

variable "cluster" {
  description = <<-END
    Nodes that share their memory as one cache; null: none. Each has `memory_limit` megabytes of items. Google replaces
    those that fail, whose items are then lost; `proxies` stand in front. `options` are memlite's own, as those of
    `servers`. The VMs are in `zones`, by default in those that Google selects.
  END
  type = object({
    nodes        = optional(number, 3)
    machine_type = optional(string, "e2-standard-2")
    disk_size_gb = optional(number, 10)
    disk_type    = optional(string, "pd-balanced")
    memory_limit = optional(number, 4096)
    options      = optional(map(string), {})
    zones        = optional(list(string))
  })
  default = null

  validation {
    condition     = try(var.cluster.nodes >= 1 && var.cluster.nodes <= 100 && floor(var.cluster.nodes) == var.cluster.nodes, var.cluster == null)
    error_message = "A cluster has a whole number of nodes, from 1 to 100. For none, set cluster = null."
  }

  validation {
    condition     = try(length(var.cluster.zones) > 0 && alltrue([for zone in var.cluster.zones : can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", zone))]), try(var.cluster.zones, null) == null)
    error_message = "The zones of a cluster are names such as europe-west1-b, at least one."
  }

  validation {
    condition     = try(var.cluster.disk_size_gb >= 10 && floor(var.cluster.disk_size_gb) == var.cluster.disk_size_gb, var.cluster == null)
    error_message = "disk_size_gb must be a whole number, and at least the 10 that the image needs."
  }

  validation {
    condition     = try(var.cluster.memory_limit >= 1 && floor(var.cluster.memory_limit) == var.cluster.memory_limit, var.cluster == null)
    error_message = "memory_limit must be a whole number of megabytes."
  }

  validation {
    condition     = alltrue([for option in keys(try(var.cluster.options, {})) : can(regex("^[a-z][a-z_-]*$", option))])
    error_message = "Options have the names in memlite --help, without the leading hyphens: max_item_size or max-item-size."
  }

  validation {
    condition = alltrue([for option in keys(try(var.cluster.options, {})) :
      !contains(["advertise", "auth_file", "backend", "config", "daemon", "enable_ssl", "join", "listen", "memory_limit", "name", "port", "udp_port", "unix_socket", "user"], replace(option, "-", "_"))
    ])
    error_message = "The module sets the options advertise, auth_file, backend, config, daemon, enable_ssl, join, listen, memory_limit, name, port, unix_socket and user; see its variables. A node has no udp_port."
  }

  validation {
    condition     = alltrue([for value in values(try(var.cluster.options, {})) : can(regex("^[^\"\\\\$`[:cntrl:]]*$", value))])
    error_message = "An option's value cannot contain double quotes, backslashes, dollar signs, backquotes or control characters."
  }
}

variable "proxies" {
  description = <<-END
    Proxies in front of the `cluster`, behind one address: `count` of them, by default two, or none without a cluster.
    `options` are those of `memlite proxy`: `{ deadline = "0.5" }` becomes `--deadline=0.5`.
  END
  type = object({
    count        = optional(number)
    machine_type = optional(string, "e2-standard-2")
    disk_size_gb = optional(number, 10)
    disk_type    = optional(string, "pd-balanced")
    options      = optional(map(string), {})
    zones        = optional(list(string))
  })
  default  = {}
  nullable = false

  validation {
    condition     = try(var.proxies.count >= 0 && var.proxies.count <= 100 && floor(var.proxies.count) == var.proxies.count, var.proxies.count == null)
    error_message = "The count must be a whole number from 0 to 100."
  }

  validation {
    condition     = try(length(var.proxies.zones) > 0 && alltrue([for zone in var.proxies.zones : can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", zone))]), var.proxies.zones == null)
    error_message = "The zones of proxies are names such as europe-west1-b, at least one."
  }

  validation {
    condition     = var.proxies.disk_size_gb >= 10 && floor(var.proxies.disk_size_gb) == var.proxies.disk_size_gb
    error_message = "disk_size_gb must be a whole number, and at least the 10 that the image needs."
  }

  validation {
    condition     = alltrue([for option in keys(var.proxies.options) : can(regex("^[a-z][a-z_-]*$", option))])
    error_message = "Options have the names in memlite proxy --help, without the leading hyphens: conn_limit or conn-limit."
  }

  validation {
    condition = alltrue([for option in keys(var.proxies.options) : !startswith(replace(option, "-", "_"), "node_") &&
      !contains(["auth_file", "cluster", "daemon", "enable_ssl", "hash", "hash_tag", "listen", "nodes", "port", "topology", "unix_socket", "user"], replace(option, "-", "_"))
    ])
    error_message = "The module sets the options auth_file, cluster, daemon, enable_ssl, listen, nodes, port, topology, unix_socket, user and those that begin with node_; see its variables. The distribution of keys is defined by the cluster, not by hash and hash_tag."
  }

  validation {
    # Values are written in double quotes into a unit of systemd.
    condition     = alltrue([for value in values(var.proxies.options) : can(regex("^[^\"\\\\$`[:cntrl:]]*$", value))])
    error_message = "An option's value cannot contain double quotes, backslashes, dollar signs, backquotes or control characters."
  }
}

variable "updates" {
  description = <<-END
    How managed groups are updated: `PROACTIVE` replaces all VMs; `OPPORTUNISTIC` updates VMs only when they are replaced for other reasons.
    `max_surge` new ones at a time (by default one per zone) are created before old ones are deleted, and at most
    `max_unavailable` may be unavailable; Google requires 0 or at least the number of zones. `initial_delay` is how many seconds
    a new VM may take to install memlite before it is replaced.
  END
  type = object({
    type            = optional(string, "PROACTIVE")
    max_surge       = optional(number)
    max_unavailable = optional(number, 0)
    initial_delay   = optional(number, 900)
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["PROACTIVE", "OPPORTUNISTIC"], var.updates.type)
    error_message = "The type must be PROACTIVE or OPPORTUNISTIC."
  }

  validation {
    condition = alltrue([for number in [coalesce(var.updates.max_surge, 1), var.updates.max_unavailable] :
      number >= 0 && floor(number) == number
    ]) && !(var.updates.max_surge == 0 && var.updates.max_unavailable == 0)
    error_message = "max_surge and max_unavailable must be whole numbers, and not both 0: nothing could be updated."
  }

  validation {
    condition     = var.updates.initial_delay >= 0 && var.updates.initial_delay <= 3600
    error_message = "initial_delay must be from 0 to 3600 seconds."
  }
}

variable "load_generators" {
  description = "VMs with `memlite bench` installed and no service running. Give them more cores than the server they load."
  type = object({
    count        = optional(number, 0)
    machine_type = optional(string, "e2-standard-4")
    zone         = optional(string)
    disk_size_gb = optional(number, 10)
    disk_type    = optional(string, "pd-balanced")
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.load_generators.count >= 0 && var.load_generators.count <= 100 && floor(var.load_generators.count) == var.load_generators.count
    error_message = "The count must be a whole number from 0 to 100."
  }

  validation {
    condition     = var.load_generators.zone == null || can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", var.load_generators.zone))
    error_message = "A zone has a name such as europe-west1-b."
  }

  validation {
    condition     = var.load_generators.disk_size_gb >= 10 && floor(var.load_generators.disk_size_gb) == var.load_generators.disk_size_gb
    error_message = "disk_size_gb must be a whole number, and at least the 10 that the image needs."
  }
}

variable "image" {
  description = "Image of the boot disks: Debian 12 or newer, or a derivative. A change replaces the VMs."
  type        = string
  default     = "debian-cloud/debian-12"
  nullable    = false
}

variable "desired_status" {
  description = "`RUNNING`, or `TERMINATED` to stop single VMs, whose disks are kept, and to delete the VMs of managed groups."
  type        = string
  default     = "RUNNING"
  nullable    = false

  validation {
    condition     = contains(["RUNNING", "TERMINATED"], var.desired_status)
    error_message = "desired_status must be RUNNING or TERMINATED."
  }
}

variable "package" {
  description = <<-END
    Source of memlite: `version`, from the package index that VMs use, with its distribution's hash in `sha256` if you
    know it; `git`, a repository's URL with `@` and a tag or commit; or `wheel`, the path of a local file, which is
    uploaded to the bucket. Default: the version of this checkout. A change upgrades servers.
  END
  type = object({
    version = optional(string)
    sha256  = optional(string)
    git     = optional(string)
    wheel   = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = length([for source in [var.package.version, var.package.git, var.package.wheel] : source if source != null]) <= 1
    error_message = "Set at most one of version, git and wheel."
  }

  validation {
    condition     = var.package.version == null || can(regex("^[0-9][0-9A-Za-z.+!-]*$", var.package.version))
    error_message = "version must be a single version such as 0.1.0."
  }

  validation {
    condition     = var.package.sha256 == null || (can(regex("^[0-9a-f]{64}$", var.package.sha256)) && var.package.version != null)
    error_message = "sha256 must be the 64 hexadecimal digits of the hash of a distribution of version, which must also be set."
  }

  validation {
    condition     = var.package.git == null || can(regex("^https://[0-9A-Za-z._~:/%+-]+@[0-9A-Za-z._/+-]+$", var.package.git))
    error_message = "git must be an https:// URL with @ and a tag, branch or commit: https://example.com/memlite.git@v0.1.0."
  }

  validation {
    condition     = var.package.wheel == null || can(regex("(^|/)memlite_cache-[0-9A-Za-z._+]+-py3-none-any\\.whl$", var.package.wheel))
    error_message = "wheel must be the path of a file with a name such as memlite_cache-0.1.0-py3-none-any.whl."
  }

  validation {
    condition     = var.package.wheel == null || try(fileexists(var.package.wheel), false)
    error_message = "The wheel does not exist."
  }
}

variable "port" {
  description = "TCP port of the servers."
  type        = number
  default     = 11211
  nullable    = false

  validation {
    condition     = var.port >= 1024 && var.port <= 65535 && floor(var.port) == var.port
    error_message = "The port must be from 1024 to 65535: memlite runs without privileges."
  }
}

variable "secrets" {
  description = <<-END
    Secrets of Secret Manager, for all servers: `users` has lines such as `user:password`, `tls_certificate` a PEM chain,
    `tls_key` its key, `tls_client_ca` the CAs of clients, whose certificates are then required. Each is the name of a
    secret in the project, or `projects/<project>/secrets/<name>`, optionally with `/versions/<number>`; by default
    servers use the latest version, within six minutes. `node_password` is the password with which a cluster's proxies log
    in to its nodes, as the user `proxy`, who must be among the `users`.
  END
  type = object({
    users           = optional(string)
    node_password   = optional(string)
    tls_certificate = optional(string)
    tls_key         = optional(string)
    tls_client_ca   = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition = alltrue([for secret in values(var.secrets) : secret == null || can(
      regex("^(projects/[a-z0-9-]+/secrets/)?[A-Za-z0-9_-]{1,255}(/versions/([0-9]+|latest))?$", secret)
    )])
    error_message = "A secret must be the name of a secret in Secret Manager, such as memlite-users or projects/my-project/secrets/memlite-users, not the password itself, which would be stored in Terraform's state."
  }

  validation {
    condition     = (var.secrets.tls_certificate == null) == (var.secrets.tls_key == null)
    error_message = "TLS needs both tls_certificate and tls_key."
  }

  validation {
    condition     = var.secrets.tls_client_ca == null || var.secrets.tls_certificate != null
    error_message = "tls_client_ca needs tls_certificate and tls_key."
  }

  validation {
    condition     = var.secrets.node_password == null || var.secrets.users != null
    error_message = "node_password needs users, with a line proxy:<password>."
  }
}

variable "existing_network" {
  description = <<-END
    IDs of an existing network and a subnet in the region, which are used instead of new ones: `projects/<project>/global/networks/<name>`
    and `projects/<project>/regions/<region>/subnetworks/<name>`. With a shared VPC, the project is the host project. The
    subnet needs Private Google Access, and the network needs access to packages, such as Cloud NAT. Set `create_firewall_rules =
    false` if the ports are opened elsewhere.
  END
  type = object({
    network               = string
    subnetwork            = string
    create_firewall_rules = optional(bool, true)
  })
  default = null

  validation {
    condition     = var.existing_network == null || can(regex("^(https://www.googleapis.com/compute/v1/)?projects/[^/]+/global/networks/[^/]+$", var.existing_network.network))
    error_message = "network must be an ID such as projects/my-project/global/networks/my-network."
  }

  validation {
    condition     = var.existing_network == null || can(regex("^(https://www.googleapis.com/compute/v1/)?projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", var.existing_network.subnetwork))
    error_message = "subnetwork must be an ID such as projects/my-project/regions/europe-west1/subnetworks/my-subnet."
  }
}

variable "dns_domain" {
  description = <<-END
    Domain of the servers' names, in a private zone of Cloud DNS: `pages-1.memlite.internal` for a server,
    `bucket.memlite.internal` for a managed group, `proxies.memlite.internal` for a cluster. Null: no zone; addresses stay
    the same, too.
  END
  type        = string
  default     = "memlite.internal"

  validation {
    condition     = var.dns_domain == null || can(regex("^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]{2,63}$", var.dns_domain))
    error_message = "dns_domain must be a domain of at least two parts, without a dot at the end, such as memlite.internal."
  }
}

variable "dns_networks" {
  description = "IDs of other networks in which the names are known, such as those peered with this one."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for network in var.dns_networks : can(regex("projects/[^/]+/global/networks/[^/]+$", network))])
    error_message = "dns_networks must be IDs such as projects/my-project/global/networks/my-network."
  }
}

variable "subnet_range" {
  description = "IP range of the VMs, unless there is an existing network. All addresses in it may connect to the servers."
  type        = string
  default     = "10.42.0.0/24"
  nullable    = false

  validation {
    condition = (
      can(regex("^(10|172\\.(1[6-9]|2[0-9]|3[01])|192\\.168)\\.", var.subnet_range)) &&
      can(cidrhost(var.subnet_range, 3)) && try(tonumber(split("/", var.subnet_range)[1]) >= 8, false)
    )
    error_message = "subnet_range must be a private IPv4 range such as 10.42.0.0/24."
  }
}

variable "client_ranges" {
  description = <<-END
    Other ranges that may connect to the servers, such as those of a network peered with this one, or of an existing
    subnet. No range may be wider than /8: without `secrets` the servers require no password, so any client that can connect can read and
    change everything.
  END
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    # IPv4 only, like the subnet.
    condition = alltrue([for range in var.client_ranges :
      can(regex("^[0-9.]+/", range)) && can(cidrhost(range, 0)) && try(tonumber(split("/", range)[1]) >= 8, false)
    ])
    error_message = "client_ranges must be IPv4 ranges such as 10.8.0.0/16, none wider than /8: a cache must not be open to the internet."
  }
}

variable "external_addresses" {
  description = "Give VMs external addresses. Without them, VMs reach the internet through Cloud NAT, to install packages."
  type        = bool
  default     = false
  nullable    = false
}

variable "bucket_name" {
  description = "Name of the bucket. Default: `<project>-<name>`."
  type        = string
  default     = null

  validation {
    condition     = var.bucket_name == null || can(regex("^[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "A bucket's name has 3 to 63 lower-case letters, digits, hyphens and underscores."
  }
}

variable "bucket_location" {
  description = "Location of the bucket. Default: the region; another location makes every command slower."
  type        = string
  default     = null
}

variable "bucket_soft_delete_seconds" {
  description = "How long overwritten and deleted objects are kept, and billed: 0, or 7 to 90 days."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.bucket_soft_delete_seconds == 0 || (var.bucket_soft_delete_seconds >= 604800 && var.bucket_soft_delete_seconds <= 7776000)
    error_message = "bucket_soft_delete_seconds must be 0, or from 604800 (7 days) to 7776000 (90 days)."
  }
}

variable "bucket_days_since_custom_time" {
  description = "Days after its expiry when the bucket removes an item; null: never. Items without an expiry stay."
  type        = number
  default     = 1

  validation {
    condition = var.bucket_days_since_custom_time == null || try(
      var.bucket_days_since_custom_time >= 0 && floor(var.bucket_days_since_custom_time) == var.bucket_days_since_custom_time, false
    )
    error_message = "bucket_days_since_custom_time must be a whole number of days, or null."
  }
}

variable "bucket_force_destroy" {
  description = "Let `destroy` remove the bucket even if it holds items."
  type        = bool
  default     = false
  nullable    = false
}

variable "monitoring" {
  description = <<-END
    `agent`: the Ops Agent on servers, in `agent_version`, sends logs and statistics to Google. `enabled`: alerts if a VM is
    down, if fewer memlite servers respond than expected, or if memlite failed, sent to channels such as
    `projects/<project>/notificationChannels/<number>`. `metrics`: servers and nodes serve memlite's own metrics on
    loopback (`--http`), the agent sends them, and a dashboard shows them; with `enabled`, there are also alerts on them.
  END
  type = object({
    agent                 = optional(bool, true)
    agent_version         = optional(string, "2.70.0")
    enabled               = optional(bool, false)
    metrics               = optional(bool, false)
    notification_channels = optional(list(string), [])
  })
  default  = {}
  nullable = false

  validation {
    condition     = can(regex("^2\\.[0-9]+\\.[0-9]+$", var.monitoring.agent_version))
    error_message = "agent_version must be a single version of the Ops Agent such as 2.70.0."
  }

  validation {
    condition     = var.monitoring.agent || !var.monitoring.metrics
    error_message = "metrics are sent by the agent; leave out agent = false."
  }
}

locals {
  zone       = coalesce(var.zone, "${var.region}-b")
  labels     = merge(var.labels, { memlite = var.name })
  server_tag = "${var.name}-server"
  load_tag   = "${var.name}-load"

  # Single servers. Their items are in memory or on the boot disk, so another VM cannot take their place.
  servers = merge([for group, settings in var.servers : {
    for number in range(1, settings.count + 1) : "${group}-${number}" => merge(settings, { group = group })
  } if !contains(keys(local.managed), group)]...)

  backends = {
    memory = "memory://"
    file   = "file:///var/lib/memlite/cache.json"
    bucket = local.bucket_url
    valkey = local.valkey_url
  }

  # The environment file of each group.
  environments = { for group, settings in merge(var.servers, local.nodes) : group => join("\n", [
    for option, value in merge(
      var.monitoring.metrics ? { HTTP = local.http } : {},
      # One worker per core, if several workers are possible.
      settings.backend == "memory" && !contains(keys(local.nodes), group) ? { THREADS = "auto" } : {},
      { for option, value in settings.options : upper(replace(option, "-", "_")) => value },
      {
        BACKEND      = local.backends[settings.backend]
        LISTEN       = "0.0.0.0"
        MEMORY_LIMIT = settings.memory_limit
        PORT         = var.port
      },
      contains(keys(local.nodes), group) ? { JOIN = local.cluster_url } : {},
      local.secrets_settings,
      length(local.secrets_extended) == 0 ? {} : {
        EXTENDED = join(",", concat(compact([lookup(settings.options, "extended", "")]), local.secrets_extended))
      },
    ) : "MEMLITE_${option}=\"${value}\""
  ]) }

  startup = {
    installer     = trimspace(file("${path.module}/../scripts/systemd/install-systemd.sh"))
    unit          = replace(trimspace(file("${path.module}/../scripts/systemd/memlite.service")), "\nExecStart=", "\nExecStartPre=+/usr/local/sbin/memlite-secrets\nExecStart=")
    identity      = ""
    watcher       = trimspace(file("${path.module}/startup_watcher.sh"))
    watcher_unit  = trimspace(file("${path.module}/startup_watcher.service"))
    secrets       = trimspace(file("${path.module}/startup_secrets.py"))
    secrets_unit  = trimspace(file("${path.module}/startup_secrets.service"))
    secrets_timer = trimspace(file("${path.module}/startup_secrets.timer"))
    agent_script  = trimspace(file("${path.module}/startup_agent.sh"))
    agent_config  = local.agent_config.other
  }
}

locals {
  metadata = { for group in setunion(keys(var.servers), keys(local.groups)) : group => {
    enable-oslogin         = "TRUE"
    block-project-ssh-keys = "TRUE"
    # A change to metadata_startup_script would replace the VM. A change here is applied by the VM's watcher.
    startup-script = templatefile("${path.module}/startup.sh.tftpl", merge(local.startup, {
      arguments    = "${local.install.server} --unit memlite.service --environment memlite.env"
      environment  = try(local.environments[group], "")
      secrets_list = local.secrets_list
      agent        = local.agent
      agent_config = local.agent_config[contains(keys(local.environments), group) ? "server" : "other"]
    }, try(local.cluster_startup[group], {}), try(local.valkey_startup[group], {})))
  } }
}

resource "google_compute_instance" "server" {
  for_each = local.servers

  project                   = var.project
  name                      = "${var.name}-${each.key}"
  zone                      = coalesce(each.value.zone, local.zone)
  machine_type              = each.value.machine_type
  desired_status            = var.desired_status
  allow_stopping_for_update = true
  labels                    = merge(local.labels, { memlite_group = each.value.group, memlite_managed = "false" })
  tags                      = [local.server_tag]

  boot_disk {
    initialize_params {
      image  = var.image
      size   = each.value.disk_size_gb
      type   = each.value.disk_type
      labels = local.labels
    }
  }

  network_interface {
    subnetwork = local.subnetwork
    network_ip = local.addresses[each.key]

    dynamic "access_config" {
      for_each = var.external_addresses ? [""] : []
      content {}
    }
  }

  service_account {
    email = google_service_account.server.email
    # Its permissions are defined by its roles.
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = local.metadata[each.value.group]

  lifecycle {
    precondition {
      condition     = startswith(coalesce(each.value.zone, local.zone), "${var.region}-")
      error_message = "The zone ${coalesce(each.value.zone, local.zone)} is not in the region ${var.region}, where the subnet is."
    }
  }

  # The first boot needs packages and the bucket.
  depends_on = [
    google_compute_router_nat.nat,
    google_storage_bucket_iam_member.server,
    google_storage_bucket_object.requirements,
    google_secret_manager_secret_iam_member.server,
  ]
}

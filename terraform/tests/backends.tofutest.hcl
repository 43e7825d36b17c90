# The settings on a VM for each backend, option and package.

mock_provider "google" {}

variables {
  project = "test-project"
  package = { git = "https://example.com/memlite.git@v0.1.0" }
  servers = {
    memory = { backend = "memory", memory_limit = 1024 }
    file   = { backend = "file", options = { durability = "everysec" } }
    bucket = { backend = "bucket", options = { near_cache = "64m", near-cache-ttl = "5", extended = "idle_timeout=600" } }
  }
}

run "backends" {
  command = plan

  assert {
    condition     = strcontains(google_compute_instance.server["memory-1"].metadata.startup-script, "\nMEMLITE_BACKEND=\"memory://\"\n")
    error_message = "memory"
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "\nMEMLITE_BACKEND=\"file:///var/lib/memlite/cache.json\"\n")
    error_message = "file"
  }

  assert {
    condition     = strcontains(google_compute_instance.server["bucket-1"].metadata.startup-script, "\nMEMLITE_BACKEND=\"gs://test-project-memlite/items\"\n")
    error_message = "bucket"
  }

  assert {
    condition = local.environments.bucket == join("\n", [
      "MEMLITE_BACKEND=\"gs://test-project-memlite/items\"",
      "MEMLITE_EXTENDED=\"idle_timeout=600\"",
      "MEMLITE_LISTEN=\"0.0.0.0\"",
      "MEMLITE_MEMORY_LIMIT=\"512\"",
      "MEMLITE_NEAR_CACHE=\"64m\"",
      "MEMLITE_NEAR_CACHE_TTL=\"5\"",
      "MEMLITE_PORT=\"11211\"",
    ])
    error_message = "The settings of the bucket's servers are others."
  }

  assert {
    condition     = strcontains(local.environments.memory, "MEMLITE_MEMORY_LIMIT=\"1024\"") && strcontains(local.environments.file, "MEMLITE_DURABILITY=\"everysec\"")
    error_message = "A group's own settings do not reach it."
  }

  assert {
    condition = alltrue([for vm in google_compute_instance.server : alltrue([
      strcontains(vm.metadata.startup-script, "ExecStart=/opt/memlite/current/bin/memlite\n"),
      strcontains(vm.metadata.startup-script, "\nUser=memlite\n"),
      strcontains(vm.metadata.startup-script, "bash ./install-systemd.sh --package 'memlite-cache[gcs] @ git+https://example.com/memlite.git@v0.1.0' --unit memlite.service --environment memlite.env)\n"),
    ])])
    error_message = "The unit, or what installs it, is missing."
  }

  assert {
    # The metadata server accepts at most 256 KB.
    condition     = alltrue([for vm in google_compute_instance.server : length(vm.metadata.startup-script) < 64 * 1024])
    error_message = "The start-up script grows too long."
  }
}

run "another_port" {
  command = plan

  variables {
    port = 12000
  }

  assert {
    condition     = alltrue([for settings in values(local.environments) : strcontains(settings, "MEMLITE_PORT=\"12000\"")])
    error_message = "Servers listen elsewhere."
  }
}

run "a_version" {
  command = plan

  variables {
    package         = { version = "0.1.0" }
    load_generators = { count = 1 }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'memlite-cache[gcs]==0.1.0' ")
    error_message = "It is not what servers install."
  }

  assert {
    condition     = strcontains(google_compute_instance.load[0].metadata.startup-script, "bash ./install-systemd.sh --package 'memlite-cache[bench,gcs]==0.1.0' --no-service)\n")
    error_message = "It is not what load generators install, or a server runs there."
  }
}

run "a_commit" {
  command = plan

  variables {
    package = { git = "https://example.com/memlite.git@v0.1.0" }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'memlite-cache[gcs] @ git+https://example.com/memlite.git@v0.1.0' ")
    error_message = "It is not what is installed."
  }
}

run "a_wheel" {
  command = plan

  variables {
    package         = { wheel = "tests/memlite_cache-0.0.0-py3-none-any.whl" }
    load_generators = { count = 1 }
  }

  assert {
    condition     = one(google_storage_bucket_object.wheel).name == "install/${substr(filesha256("tests/memlite_cache-0.0.0-py3-none-any.whl"), 0, 12)}/memlite_cache-0.0.0-py3-none-any.whl"
    error_message = "Another wheel would not have another name."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'gs://test-project-memlite/${one(google_storage_bucket_object.wheel).name}[gcs]' ")
    error_message = "It is not what is installed."
  }

  assert {
    condition     = length(google_storage_bucket_iam_member.load) == 1 && strcontains(one(one(google_storage_bucket_iam_member.load).condition).expression, "test-project-memlite/objects/install/")
    error_message = "Load generators may not read the wheel, or may read items."
  }
}

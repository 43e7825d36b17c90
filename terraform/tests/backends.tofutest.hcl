# The settings on a VM for each backend, option and package.

mock_provider "google" {}

variables {
  project = "test-project"
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
    condition     = strcontains(google_compute_instance_template.server["bucket"].metadata.startup-script, "\nMEMLITE_BACKEND=\"gs://test-project-memlite/items\"\n")
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
    error_message = "The settings of the servers with a bucket are wrong."
  }

  assert {
    condition     = strcontains(local.environments.memory, "MEMLITE_THREADS=\"auto\"") && !strcontains(local.environments.file, "MEMLITE_THREADS") && !strcontains(local.environments.bucket, "MEMLITE_THREADS")
    error_message = "Servers that do not keep items in memory have several workers, or those that do have one."
  }

  assert {
    condition     = strcontains(local.environments.memory, "MEMLITE_MEMORY_LIMIT=\"1024\"") && strcontains(local.environments.file, "MEMLITE_DURABILITY=\"everysec\"")
    error_message = "A group's own settings are not applied."
  }

  assert {
    condition = alltrue([for vm in concat(values(google_compute_instance.server), values(google_compute_instance_template.server)) : alltrue([
      strcontains(vm.metadata.startup-script, "ExecStart=/opt/memlite/current/bin/memlite\n"),
      strcontains(vm.metadata.startup-script, "\nUser=memlite\n"),
      strcontains(vm.metadata.startup-script, "bash ./install-systemd.sh ${local.install.server} --unit memlite.service --environment memlite.env)\n"),
    ])])
    error_message = "The unit or its installer is missing."
  }

  assert {
    # The metadata server accepts at most 256 KB.
    condition     = alltrue([for vm in concat(values(google_compute_instance.server), values(google_compute_instance_template.server)) : length(vm.metadata.startup-script) < 64 * 1024])
    error_message = "The start-up script is too long."
  }
}

run "another_port" {
  command = plan

  variables {
    port = 12000
  }

  assert {
    condition     = alltrue([for settings in values(local.environments) : strcontains(settings, "MEMLITE_PORT=\"12000\"")])
    error_message = "Servers listen on the wrong port."
  }
}

run "the_version_of_the_checkout" {
  command = plan

  variables {
    load_generators = { count = 1 }
  }

  assert {
    condition     = local.packages.server == "memlite-cache[gcs]==${local.version}" && can(regex("^[0-9.]+", local.version))
    error_message = "Servers install a different package."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, " --package 'memlite-cache[gcs]==${local.version}' ")
    error_message = "Servers install a different package."
  }

  assert {
    condition     = strcontains(google_compute_instance.load[0].metadata.startup-script, "bash ./install-systemd.sh --package 'memlite-cache[bench,gcs]==${local.version}' --requirements ") && strcontains(google_compute_instance.load[0].metadata.startup-script, " --no-service)\n")
    error_message = "Load generators install a different package, or run a server."
  }
}

run "locked_dependencies" {
  command = plan

  variables {
    load_generators = { count = 1 }
  }

  assert {
    condition = { for vm, object in google_storage_bucket_object.requirements : vm => object.name } == {
      server = "install/${filesha256("../requirements/gcs.txt")}/server.txt"
      load   = "install/${filesha256("../requirements/bench.txt")}/load.txt"
    }
    error_message = "The name does not depend on the dependencies."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, " --requirements 'gs://test-project-memlite/${google_storage_bucket_object.requirements["server"].name} --hash=sha256:${filesha256("../requirements/gcs.txt")}' ")
    error_message = "Servers install dependencies that are not locked."
  }

  assert {
    condition     = strcontains(google_compute_instance.load[0].metadata.startup-script, " --requirements 'gs://test-project-memlite/${google_storage_bucket_object.requirements["load"].name} --hash=sha256:${filesha256("../requirements/bench.txt")}' ")
    error_message = "Load generators install dependencies that are not locked."
  }

  assert {
    condition     = length(google_storage_bucket_iam_member.load) == 1 && strcontains(one(one(google_storage_bucket_iam_member.load).condition).expression, "test-project-memlite/objects/install/")
    error_message = "Load generators cannot read their packages, or can read items."
  }
}

run "no_dependencies_of_load_generators_without_any" {
  command = plan

  assert {
    condition     = keys(google_storage_bucket_object.requirements) == ["server"] && length(google_storage_bucket_iam_member.load) == 0
    error_message = "There are files for load generators, but no load generators."
  }
}

run "a_version" {
  command = plan

  variables {
    package = { version = "0.2.0" }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'memlite-cache[gcs]==0.2.0' ")
    error_message = "Servers install a different package."
  }
}

run "a_version_with_its_hash" {
  command = plan

  variables {
    package = { version = "0.2.0", sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'memlite-cache[gcs]==0.2.0 --hash=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' ")
    error_message = "The hash is missing."
  }
}

run "a_commit" {
  command = plan

  variables {
    package = { git = "https://example.com/memlite.git@v0.1.0" }
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'memlite-cache[gcs] @ git+https://example.com/memlite.git@v0.1.0' ")
    error_message = "A different package is installed."
  }
}

run "a_wheel" {
  command = plan

  variables {
    package = { wheel = "tests/memlite_cache-0.0.0-py3-none-any.whl" }
  }

  assert {
    condition     = one(google_storage_bucket_object.wheel).name == "install/${filesha256("tests/memlite_cache-0.0.0-py3-none-any.whl")}/memlite_cache-0.0.0-py3-none-any.whl"
    error_message = "The name does not depend on the wheel."
  }

  assert {
    condition     = strcontains(google_compute_instance.server["file-1"].metadata.startup-script, "--package 'gs://test-project-memlite/${one(google_storage_bucket_object.wheel).name}[gcs] --hash=sha256:${filesha256("tests/memlite_cache-0.0.0-py3-none-any.whl")}' ")
    error_message = "A different package is installed."
  }
}

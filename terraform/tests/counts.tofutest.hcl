# Zero, one and three of each, and the corresponding outputs.

mock_provider "google" {}

variables {
  project = "test-project"
}

run "none" {
  variables {
    servers = { bucket = { backend = "bucket", count = 0 } }
  }

  assert {
    condition     = length(output.servers) == 0 && length(output.load_generators) == 0 && length(output.bench_targets) == 0 && length(output.ssh) == 0
    error_message = "There are VMs."
  }

  assert {
    condition     = length(output.pymemcache) == 0
    error_message = "There is a client without a server."
  }
}

run "no_group" {
  variables {
    servers = {}
  }

  assert {
    condition     = length(output.servers) == 0
    error_message = "There are VMs."
  }
}

run "one" {
  variables {
    load_generators = { count = 1 }
  }

  assert {
    condition     = keys(output.servers) == ["memlite-bucket"] && keys(output.load_generators) == ["memlite-load-1"]
    error_message = "The names of the VMs are wrong."
  }

  assert {
    condition     = output.servers["memlite-bucket"].zones == null && output.servers["memlite-bucket"].backend == "bucket" && output.project == "test-project"
    error_message = "The outputs are wrong."
  }

  assert {
    condition     = output.bucket_url == "gs://test-project-memlite/items"
    error_message = "The bucket's URL is wrong."
  }

  assert {
    condition     = output.bench_targets == ["${output.servers["memlite-bucket"].address}:11211=bucket"]
    error_message = "The targets are wrong."
  }
}

run "three" {
  variables {
    name   = "cache"
    region = "us-central1"
    servers = {
      bucket = { backend = "bucket", count = 3, managed = false }
      memory = { backend = "memory", zone = "us-central1-c" }
    }
    load_generators = { count = 3, zone = "us-central1-f" }
  }

  assert {
    condition     = keys(output.servers) == ["cache-bucket-1", "cache-bucket-2", "cache-bucket-3", "cache-memory-1"]
    error_message = "The servers are wrong."
  }

  assert {
    condition     = [for vm in values(output.servers) : one(vm.zones)] == ["us-central1-b", "us-central1-b", "us-central1-b", "us-central1-c"]
    error_message = "The servers are in the wrong zones."
  }

  assert {
    condition     = [for vm in values(output.load_generators) : vm.zone] == ["us-central1-f", "us-central1-f", "us-central1-f"]
    error_message = "The zone or the number of load generators is wrong."
  }

  assert {
    condition     = output.bench == "memlite bench compare --backends '' ${join(" ", [for target in output.bench_targets : "--target ${target}"])}" && length(output.bench_targets) == 4
    error_message = "The command for the load tester is wrong."
  }

  assert {
    condition     = length(regexall("11211\\)", output.pymemcache.bucket)) == 3 && length(regexall("11211\\)", output.pymemcache.memory)) == 1
    error_message = "A client does not use exactly the servers of its group."
  }

  assert {
    condition     = output.ssh["cache-load-2"] == "gcloud compute ssh cache-load-2 --project test-project --zone us-central1-f --tunnel-through-iap"
    error_message = "The command for a shell is wrong."
  }
}

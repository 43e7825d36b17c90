mock_provider "google" {}

variables {
  project = "test-project"
}

run "servers_and_a_load_generator" {
  assert {
    condition     = keys(output.servers) == ["memlite-bucket", "memlite-memory-1"]
    error_message = "The servers are wrong."
  }

  assert {
    condition     = keys(output.load_generators) == ["memlite-load-1"] && length(output.bench_targets) == 2
    error_message = "The load generator is missing, or its targets are wrong."
  }

  assert {
    condition     = output.bucket_url == "gs://test-project-memlite/items"
    error_message = "The bucket is wrong."
  }
}

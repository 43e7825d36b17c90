mock_provider "google" {}

variables {
  project = "test-project"
}

run "servers_and_a_load_generator" {
  assert {
    condition     = keys(output.servers) == ["memlite-bucket", "memlite-memory-1"]
    error_message = "There are other servers."
  }

  assert {
    condition     = keys(output.load_generators) == ["memlite-load-1"] && length(output.bench_targets) == 2
    error_message = "There is no load generator, or it has other targets."
  }

  assert {
    condition     = output.bucket_url == "gs://test-project-memlite/items"
    error_message = "The bucket is another."
  }
}

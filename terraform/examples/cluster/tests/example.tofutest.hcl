mock_provider "google" {}

variables {
  project = "test-project"
  nodes   = 5
}

run "nodes_behind_proxies" {
  assert {
    condition     = output.proxies.host == "proxies.memlite.internal" && output.proxies.port == 11211 && output.proxies.count == 2
    error_message = "The output shows the wrong address for clients."
  }

  assert {
    condition     = output.cluster.url == "gs://test-project-memlite/cluster" && output.cluster.nodes == 5
    error_message = "The output shows the wrong cluster."
  }
}

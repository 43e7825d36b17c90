mock_provider "google" {}

variables {
  project               = "test-project"
  host_project          = "host-project"
  notification_channels = ["projects/test-project/notificationChannels/1"]
}

run "one_group_at_one_address" {
  assert {
    condition     = keys(output.servers) == ["memlite-sessions"] && output.servers["memlite-sessions"].host == "sessions.memlite.internal" && output.servers["memlite-sessions"].count == 3
    error_message = "The output shows the wrong group."
  }

  assert {
    condition     = output.servers["memlite-sessions"].zones == tolist(["europe-west1-b", "europe-west1-c", "europe-west1-d"])
    error_message = "The VMs are in the wrong zones."
  }
}

# Variables reject values that would fail later, or open access that should be closed.

mock_provider "google" {}

variables {
  project = "test-project"
}

run "project" {
  command = plan

  variables {
    project = "123456"
  }

  expect_failures = [var.project]
}

run "project_of_a_domain" {
  command = plan

  variables {
    project = "example.com:x"
  }

  expect_failures = [var.project]
}

run "name_with_capitals" {
  command = plan

  variables {
    name = "Memlite"
  }

  expect_failures = [var.name]
}

run "name_too_long" {
  command = plan

  variables {
    name = "a-name-of-23-characters"
  }

  expect_failures = [var.name]
}

run "region_that_is_a_zone" {
  command = plan

  variables {
    region = "europe-west1-b"
  }

  expect_failures = [var.region]
}

run "zone_that_is_a_region" {
  command = plan

  variables {
    zone = "europe-west1"
  }

  expect_failures = [var.zone]
}

run "backend" {
  command = plan

  variables {
    servers = { a = { backend = "redis" } }
  }

  expect_failures = [var.servers]
}

run "group_with_capitals" {
  command = plan

  variables {
    servers = { Memory = { backend = "memory" } }
  }

  expect_failures = [var.servers]
}

run "group_called_load" {
  command = plan

  variables {
    servers = { load = { backend = "memory" } }
  }

  expect_failures = [var.servers]
}

run "count_below_zero" {
  command = plan

  variables {
    servers = { a = { backend = "memory", count = -1 } }
  }

  expect_failures = [var.servers]
}

run "count_with_a_fraction" {
  command = plan

  variables {
    servers = { a = { backend = "memory", count = 1.5 } }
  }

  expect_failures = [var.servers]
}

run "zone_of_a_group" {
  command = plan

  variables {
    servers = { a = { backend = "memory", zone = "b" } }
  }

  expect_failures = [var.servers]
}

run "disk_too_small" {
  command = plan

  variables {
    servers = { a = { backend = "memory", disk_size_gb = 5 } }
  }

  expect_failures = [var.servers]
}

run "memory_limit" {
  command = plan

  variables {
    servers = { a = { backend = "memory", memory_limit = 0 } }
  }

  expect_failures = [var.servers]
}

run "option_with_hyphens_before_it" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { "--verbose" = "1" } } }
  }

  expect_failures = [var.servers]
}

run "option_that_is_the_modules" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { memory-limit = "64" } } }
  }

  expect_failures = [var.servers]
}

run "option_with_a_quote" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { near_cache = "\"" } } }
  }

  expect_failures = [var.servers]
}

run "option_with_a_dollar" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { near_cache = "$x" } } }
  }

  expect_failures = [var.servers]
}

run "option_with_two_lines" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { near_cache = "1\nMEMLITE_BACKEND=x" } } }
  }

  expect_failures = [var.servers]
}

run "load_generators_below_zero" {
  command = plan

  variables {
    load_generators = { count = -1 }
  }

  expect_failures = [var.load_generators]
}

run "zone_of_load_generators" {
  command = plan

  variables {
    load_generators = { zone = "b" }
  }

  expect_failures = [var.load_generators]
}

run "disk_of_load_generators" {
  command = plan

  variables {
    load_generators = { disk_size_gb = 5 }
  }

  expect_failures = [var.load_generators]
}

run "desired_status" {
  command = plan

  variables {
    desired_status = "STOPPED"
  }

  expect_failures = [var.desired_status]
}

run "two_packages" {
  command = plan

  variables {
    package = { version = "0.1.0", git = "https://example.com/memlite.git@main" }
  }

  expect_failures = [var.package]
}

run "hash_of_no_version" {
  command = plan

  variables {
    package = { sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" }
  }

  expect_failures = [var.package]
}

run "hash_that_is_none" {
  command = plan

  variables {
    package = { version = "0.1.0", sha256 = "e3b0c442" }
  }

  expect_failures = [var.package]
}

run "version_that_is_a_range" {
  command = plan

  variables {
    package = { version = ">=0.1" }
  }

  expect_failures = [var.package]
}

run "git_without_ref" {
  command = plan

  variables {
    package = { git = "https://example.com/memlite.git" }
  }

  expect_failures = [var.package]
}

run "git_with_a_quote" {
  command = plan

  variables {
    package = { git = "https://example.com/memlite.git@main'; reboot #" }
  }

  expect_failures = [var.package]
}

run "wheel_of_another_package" {
  command = plan

  variables {
    package = { wheel = "tests/other-0.0.0-py3-none-any.whl" }
  }

  expect_failures = [var.package]
}

run "wheel_that_is_not_there" {
  command = plan

  variables {
    package = { wheel = "tests/memlite_cache-9.9.9-py3-none-any.whl" }
  }

  expect_failures = [var.package]
}

run "port_of_the_system" {
  command = plan

  variables {
    port = 80
  }

  expect_failures = [var.port]
}

run "port_too_high" {
  command = plan

  variables {
    port = 65536
  }

  expect_failures = [var.port]
}

run "subnet_of_the_internet" {
  command = plan

  variables {
    subnet_range = "8.8.0.0/16"
  }

  expect_failures = [var.subnet_range]
}

run "subnet_that_is_none" {
  command = plan

  variables {
    subnet_range = "10.0.0.0"
  }

  expect_failures = [var.subnet_range]
}

run "subnet_that_only_begins_private" {
  command = plan

  variables {
    subnet_range = "172.64.0.0/16"
  }

  expect_failures = [var.subnet_range]
}

run "everybody" {
  command = plan

  variables {
    client_ranges = ["0.0.0.0/0"]
  }

  expect_failures = [var.client_ranges]
}

run "everybody_of_ipv6" {
  command = plan

  variables {
    client_ranges = ["::/0"]
  }

  expect_failures = [var.client_ranges]
}

run "half_of_everybody" {
  command = plan

  variables {
    client_ranges = ["10.8.0.0/16", "128.0.0.0/1"]
  }

  expect_failures = [var.client_ranges]
}

run "range_that_is_none" {
  command = plan

  variables {
    client_ranges = ["10.8.0.0"]
  }

  expect_failures = [var.client_ranges]
}

run "bucket_name" {
  command = plan

  variables {
    bucket_name = "My_Bucket"
  }

  expect_failures = [var.bucket_name]
}

run "soft_delete_of_an_hour" {
  command = plan

  variables {
    bucket_soft_delete_seconds = 3600
  }

  expect_failures = [var.bucket_soft_delete_seconds]
}

run "days_below_zero" {
  command = plan

  variables {
    bucket_days_since_custom_time = -1
  }

  expect_failures = [var.bucket_days_since_custom_time]
}

run "zone_of_another_region" {
  command = plan

  variables {
    zone            = "us-central1-a"
    load_generators = { count = 1 }
    servers = {
      pages  = { backend = "memory" }
      bucket = { backend = "bucket" }
    }
  }

  expect_failures = [google_compute_instance.server, google_compute_instance.load, google_compute_instance_template.server]
}

run "password_instead_of_a_secret" {
  command = plan

  variables {
    secrets = { users = "web:correct-horse" }
  }

  expect_failures = [var.secrets]
}

run "certificate_without_key" {
  command = plan

  variables {
    secrets = { tls_certificate = "chain" }
  }

  expect_failures = [var.secrets]
}

run "clients_certificates_without_tls" {
  command = plan

  variables {
    secrets = { tls_client_ca = "ca" }
  }

  expect_failures = [var.secrets]
}

run "option_that_is_a_secret" {
  command = plan

  variables {
    servers = { a = { backend = "memory", options = { auth-file = "/etc/passwd" } } }
  }

  expect_failures = [var.servers]
}

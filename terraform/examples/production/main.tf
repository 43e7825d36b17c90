# Three servers that share a bucket, spread over three zones of a shared VPC, with passwords, TLS and alerts:
#
#     tofu init
#     tofu apply -var project=my-project -var host_project=my-host -var 'notification_channels=["projects/my-project/notificationChannels/1"]'
#
# The secrets must exist: memlite-users, memlite-certificate, memlite-key.

terraform {
  required_version = ">= 1.6"
}

variable "project" {
  description = "ID of the project."
  type        = string
}

variable "host_project" {
  description = "ID of the project with the shared VPC."
  type        = string
}

variable "network" {
  description = "Name of the shared network and of its subnet in the region."
  type        = string
  default     = "shared"
}

variable "region" {
  description = "Region of all resources, including the bucket."
  type        = string
  default     = "europe-west1"
}

variable "client_ranges" {
  description = "Ranges of the clients in the shared network."
  type        = list(string)
  default     = ["10.20.0.0/16"]
}

variable "notification_channels" {
  description = "Channels that alerts are sent to."
  type        = list(string)
}

variable "package" {
  description = "Source of memlite; see the module."
  type        = object({ version = optional(string), sha256 = optional(string), git = optional(string), wheel = optional(string) })
  default     = {}
}

provider "google" {
  project = var.project
  region  = var.region
}

module "memlite" {
  source = "../.."

  project = var.project
  region  = var.region
  package = var.package

  servers = {
    sessions = {
      backend      = "bucket"
      count        = 3
      zones        = ["${var.region}-b", "${var.region}-c", "${var.region}-d"]
      machine_type = "e2-standard-2"
      options      = { near_cache = "256m" }
    }
  }

  existing_network = {
    network    = "projects/${var.host_project}/global/networks/${var.network}"
    subnetwork = "projects/${var.host_project}/regions/${var.region}/subnetworks/${var.network}"
  }
  client_ranges = var.client_ranges

  secrets = {
    users           = "memlite-users"
    tls_certificate = "memlite-certificate"
    tls_key         = "memlite-key"
  }

  monitoring = {
    enabled               = true
    notification_channels = var.notification_channels
  }
}

# Three servers that share a bucket, one with items in memory for comparison, and a load generator:
#
#     tofu init
#     tofu apply -var project=my-project

terraform {
  required_version = ">= 1.6"
}

variable "project" {
  description = "ID of the project."
  type        = string
}

variable "region" {
  description = "Region of all resources, including the bucket."
  type        = string
  default     = "europe-west1"
}

variable "package" {
  description = "Source of memlite; see the module."
  type        = object({ version = optional(string), sha256 = optional(string), git = optional(string), wheel = optional(string) })
  default     = {}
}

variable "desired_status" {
  description = "TERMINATED stops all VMs; RUNNING starts them again."
  type        = string
  default     = "RUNNING"
}

provider "google" {
  project = var.project
  region  = var.region
}

module "memlite" {
  source = "../.."

  project        = var.project
  region         = var.region
  package        = var.package
  desired_status = var.desired_status

  servers = {
    bucket = {
      backend      = "bucket"
      count        = 3
      machine_type = "e2-standard-2"
      options      = { near_cache = "256m" }
    }
    memory = {
      backend      = "memory"
      machine_type = "e2-standard-2"
      memory_limit = 4096
    }
  }

  load_generators = { count = 1 }
}

# Three nodes that share their memory as one cache, and two proxies in front of them at one address:
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

variable "nodes" {
  description = "Number of nodes."
  type        = number
  default     = 3
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

  # No single servers.
  servers = {}
  cluster = { nodes = var.nodes, machine_type = "e2-highmem-2", memory_limit = 12000 }
  proxies = { count = 2 }
}

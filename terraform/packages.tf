# The packages that VMs install: memlite, and the dependencies locked in requirements/. Both are identified by their
# SHA-256 in the start-up script: servers may write to the bucket, but cannot replace the packages there.

locals {
  # The version of the checkout that contains this module.
  version = one(regex("(?m)^__version__ = \"([^\"]+)\"$", file("${path.module}/../memlite/core/version.py")))

  # Including build tools, which a package from git needs. Those of the load tester also include Valkey's.
  requirements = {
    server = "${path.module}/../requirements/${local.valkey == 1 ? "bench" : "gcs"}.txt"
    load   = "${path.module}/../requirements/bench.txt"
  }

  extras = { server = local.valkey == 1 ? "[gcs,valkey]" : "[gcs]", load = "[bench,gcs]" }

  # As in pip's requirement files.
  packages = { for vm, extras in local.extras : vm => (
    var.package.wheel != null ? "${local.bucket}/${one(google_storage_bucket_object.wheel[*].name)}${extras} --hash=sha256:${filesha256(var.package.wheel)}" :
    var.package.git != null ? "memlite-cache${extras} @ git+${var.package.git}" :
    join(" ", concat(
      ["memlite-cache${extras}==${coalesce(var.package.version, local.version)}"],
      var.package.sha256 == null ? [] : ["--hash=sha256:${var.package.sha256}"],
    ))
  ) }

  install = { for vm, file in local.requirements : vm => join(" ", [
    "--package '${local.packages[vm]}'",
    "--requirements '${local.bucket}/install/${filesha256(file)}/${vm}.txt --hash=sha256:${filesha256(file)}'",
  ]) }
}

resource "google_storage_bucket_object" "wheel" {
  count = var.package.wheel == null ? 0 : 1

  bucket = google_storage_bucket.bucket.name
  # The name contains a hash of the content, so VMs notice a new package.
  name   = "install/${filesha256(var.package.wheel)}/${basename(var.package.wheel)}"
  source = var.package.wheel

  lifecycle {
    # The old one stays until no VM's start-up script refers to it.
    create_before_destroy = true
  }
}

resource "google_storage_bucket_object" "requirements" {
  for_each = { for vm, file in local.requirements : vm => file if vm == "server" || var.load_generators.count > 0 }

  bucket = google_storage_bucket.bucket.name
  name   = "install/${filesha256(each.value)}/${each.key}.txt"
  source = each.value

  lifecycle {
    create_before_destroy = true
  }
}

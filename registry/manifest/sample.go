package manifest

import (
	"embed"
	"io/fs"
)

//go:embed sample/*.yaml
var sample embed.FS

// Sample is a small cluster to try things on: namespaces shop and data, on three
// nodes in three zones.
//
//	shop/web      ClusterIP, six pods over three zones, ports http and metrics
//	shop/api      dual-stack, two pods, port grpc
//	shop/jobs     a pod that is ready, one that is not, one that is going
//	shop/billing  ExternalName, to a name of somebody else's
//	shop/pg       ExternalName, to db.data.registry.local
//	data/db       headless, of a StatefulSet, three pods with host names
func Sample() fs.FS {
	dir, err := fs.Sub(sample, "sample")
	if err != nil {
		panic("manifest: " + err.Error()) // the name is a constant
	}
	return dir
}

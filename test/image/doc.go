// Package image makes an OCI image of epdns, for several platforms, without a container engine.
//
//	epdns.oci/          an image layout: what "skopeo copy oci:..." and "crane push" take
//	  oci-layout
//	  index.json          one image, under its tag
//	  blobs/sha256/...    an index of manifests: for each platform one of the image,
//	                      and one of its bill of materials, which refers to it
//	epdns.oci.tar       the same as one file, for "docker load" and "oci-archive:..."
//	epdns-OS-ARCH.cdx.json   each bill of materials by itself
//
// The image has one file, the program. It runs as a numeric user, since the kubelet cannot tell
// what number a name has. Nothing in it depends on when or where it was built: the same source and
// the same Go make the same bytes.
//
// No certificate authorities are in it: in a cluster, the API server's comes with the service
// account, elsewhere with the kubeconfig, and epdns connects to nobody else by TLS.
package image

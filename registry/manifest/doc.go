// Package manifest is a [registry.Source] that reads Services, EndpointSlices and
// Nodes from files, written by hand or by kubectl get -o yaml.
//
//	fs.FS ── scan ──▶ files ── decode ──▶ objects ── accept ──▶ registry.Feed
//	          ▲                                        │
//	          └──────────── every Interval ◀───────────┘
//
// A directory is read with its sub-directories: every *.yaml, *.yml and *.json
// whose name does not begin with a dot. A single file may have any name. A file
// holds any number of documents, and lists of kind List, ServiceList, NodeList or
// EndpointSliceList. Objects of other kinds are counted and passed over, fields
// that are not known are too. An object without a namespace is in "default"; it
// needs a name and no uid.
//
// # What exists
//
// Where the files hold no Service at all, a Service exists while an EndpointSlice
// names it; as soon as there is one, Services exist with their objects. Both are
// one [registry.Feed] each, for all namespaces.
//
// # Mistakes
//
// The first read must be without a fault, else Run returns [Faults]: each names
// the file, the document, its line and what is wrong, and a field of the wrong kind
// with a line of its own. All of a file are told. Later on, a file with a fault
// keeps what it last said, while the others go on changing; a fault is logged once
// and its end once. An object that stands in two places is a fault of the file that
// came to it later.
//
// # Changes
//
// Files are looked at every [Source.Interval]: size, modification time and, while
// that time is too young to tell two writes apart, content. Symbolic links are
// followed, so that the swap of a mounted ConfigMap is seen. A file that is empty
// or gone is given one more look before it is believed, for editors truncate and
// rename. A directory that can't be read changes nothing, nor does one in which no
// file is left, as where a volume is not mounted: what was known stays until there are
// files again. A file with nothing but a comment in it says that there is nothing.
// Files without modification times, as an [embed.FS] has them, are read once.
package manifest

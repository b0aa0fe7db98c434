// Package menu simulates a cloud that sells VMs. A [Menu] lists the VM types. A [Market]
// has their current prices and availability, and reclaims and fails sold VMs.
//
// A menu is a JSON file:
//
//	{
//	  "version": 1,
//	  "types": [
//	    {
//	      "name": "m16", "memory": "16GiB", "cores": 4,
//	      "sold": [
//	        {
//	          "cloud_region": "east",          // where; clients name theirs
//	          "distance": 1,                   // switches between it and a client; 0: not known
//	          "price": 0.16,                   // dollars an hour
//	          "available": 20,                 // at a time; omitted: any number
//	          "mean_time_to_failure": "8760h", // of one VM; omitted: it does not fail
//	          "spot": {                        // omitted: not sold as spot VM
//	            "price": 0.04, "lowest": 0.02, "highest": 0.12, // it wanders between the two
//	            "available": 10,
//	            "notice": "30s",               // before a VM is taken back
//	            "mean_time_to_reclaim": "4h"   // omitted: it is not taken back
//	          }
//	        }
//	      ]
//	    }
//	  ]
//	}
//
// with comments left out, as JSON has none. The first cloud region is the default.
package menu

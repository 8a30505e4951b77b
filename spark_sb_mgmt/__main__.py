"""`python -m spark_sb_mgmt`."""

import sys

from spark_sb_mgmt.cli.main import main

sys.exit(main())

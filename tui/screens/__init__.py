"""The screens, their dialogs and actions; `catalogue.py` lists the screens."""
